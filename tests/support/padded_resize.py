"""libmtmd's own picture resize, a wrong variant here: it keeps the ratio and pads.

The rule is ``mtmd_image_preprocessor_dyn_size`` with ``PAD_CEIL``; the reference
stretches the picture to the target size instead.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FACTOR = 28


def _target(size: int) -> int:
    return max(FACTOR, math.floor(size / FACTOR + 0.5) * FACTOR)


def padded_resize(image: NDArray[np.uint8], min_pixels: int = 3136) -> NDArray[np.uint8]:
    """Resizes to multiples of 28 with black borders.

    Args:
        image: uint8 [H, W, 3].
        min_pixels: Fewest pixels of the result.

    Returns:
        uint8 [H', W', 3].
    """
    height, width, _ = image.shape
    new_h, new_w = _target(height), _target(width)
    if new_h * new_w < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_h = math.ceil(height * beta / FACTOR) * FACTOR
        new_w = math.ceil(width * beta / FACTOR) * FACTOR
    scale = min(new_w / width, new_h / height)
    inner_w = min(math.ceil(width * scale), new_w)
    inner_h = min(math.ceil(height * scale), new_h)
    inner = Image.fromarray(image).resize((inner_w, inner_h), Image.Resampling.BICUBIC)
    canvas = np.zeros((new_h, new_w, 3), np.uint8)
    top, left = (new_h - inner_h) // 2, (new_w - inner_w) // 2
    canvas[top : top + inner_h, left : left + inner_w] = np.asarray(inner)
    return canvas
