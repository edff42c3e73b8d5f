"""RGB picture to the patches that a Qwen2-VL vision tower takes.

The values are those of transformers' ``Qwen2VLImageProcessorPil`` (read in 5.24.0), bit
for bit on the same Pillow::

    patches, grid_thw = preprocess(to_rgb("page.png"), min_pixels=3136, max_pixels=602112)

All functions are pure and may run in several threads at once; the resize and the array
work release the GIL.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from jmm.errors import InputError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# OPENAI_CLIP_MEAN and OPENAI_CLIP_STD of transformers' image_utils.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

MAX_ASPECT_RATIO = 200


def smart_resize(
    height: int, width: int, *, factor: int = 28, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """The size that a picture is resized to: multiples of ``factor``, area within limits.

    The rule is ``smart_resize`` of transformers' Qwen2-VL image processors, with Python's
    round-half-to-even.

    Args:
        height: Pixels, at least 1.
        width: Pixels, at least 1.
        factor: Pixels per side of one token (patch_size * merge_size).
        min_pixels: Least area of the result, at least 1.
        max_pixels: Greatest area of the result; a side never falls below ``factor``,
            so that a long thin picture may exceed it.

    Returns:
        (height, width) in pixels.

    Raises:
        InputError: A side is below 1, the sides differ by a ratio above 200, or the
            limits do not satisfy 1 <= min_pixels <= max_pixels.
    """
    if height < 1 or width < 1:
        raise InputError(
            f"a picture of {width}x{height} pixels has nothing to embed; "
            "both sides must be at least 1"
        )
    if not 1 <= min_pixels <= max_pixels:
        raise InputError(
            f"min_pixels={min_pixels} and max_pixels={max_pixels} do not satisfy "
            "1 <= min_pixels <= max_pixels"
        )
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise InputError(
            f"a picture of {width}x{height} pixels has an aspect ratio of "
            f"{max(height, width) / min(height, width):.1f}, the limit is {MAX_ASPECT_RATIO}; "
            "crop or split it"
        )
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_height, new_width


def grid_for(
    height: int,
    width: int,
    *,
    min_pixels: int,
    max_pixels: int,
    patch_size: int = 14,
    merge_size: int = 2,
) -> tuple[int, int, int]:
    """The grid that :func:`preprocess` would give, without touching pixels.

    Args:
        height: Pixels of the RGB picture.
        width: Pixels of the RGB picture.
        min_pixels: As for :func:`smart_resize`.
        max_pixels: As for :func:`smart_resize`.
        patch_size: Pixels per side of a patch.
        merge_size: Patches per side of a token.

    Returns:
        (1, grid_h, grid_w) in patches; the picture takes
        ``grid_h * grid_w // merge_size**2`` tokens.

    Raises:
        InputError: As for :func:`smart_resize`.
    """
    new_height, new_width = smart_resize(
        height,
        width,
        factor=patch_size * merge_size,
        min_pixels=min_pixels,
        max_pixels=max_pixels,
    )
    return 1, new_height // patch_size, new_width // patch_size


def preprocess(
    image: Image.Image,
    *,
    min_pixels: int,
    max_pixels: int,
    patch_size: int = 14,
    merge_size: int = 2,
    temporal_patch_size: int = 2,
    image_mean: Sequence[float] = CLIP_MEAN,
    image_std: Sequence[float] = CLIP_STD,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Resize (bicubic), normalise and cut one picture into patches.

    Args:
        image: Mode RGB, as :func:`jmm.images.to_rgb` gives it; only read.
        min_pixels: As for :func:`smart_resize`.
        max_pixels: As for :func:`smart_resize`.
        patch_size: Pixels per side of a patch.
        merge_size: Patches per side of a token.
        temporal_patch_size: How many equal frames a patch holds.
        image_mean: Per channel, of values in [0, 1].
        image_std: Per channel, of values in [0, 1].

    Returns:
        Patches, C-contiguous float32
        [grid_h * grid_w, 3 * temporal_patch_size * patch_size**2], the merge_size**2
        patches of a token next to each other; and grid_thw, int64 [3] = (1, grid_h, grid_w).

    Raises:
        InputError: The picture is not RGB, or as for :func:`smart_resize`.
        OutOfMemoryError: There is no memory for the patches.
    """
    if image.mode != "RGB":
        raise InputError(f"the picture has mode {image.mode}, preprocess takes RGB; use to_rgb")
    grid_thw = grid_for(
        image.height,
        image.width,
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        patch_size=patch_size,
        merge_size=merge_size,
    )
    _, grid_h, grid_w = grid_thw
    size = grid_w * patch_size, grid_h * patch_size
    try:
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
        patches = patchify(
            np.asarray(image),
            patch_size=patch_size,
            merge_size=merge_size,
            temporal_patch_size=temporal_patch_size,
            image_mean=image_mean,
            image_std=image_std,
        )
    except MemoryError as error:
        raise OutOfMemoryError(
            f"no memory for {grid_h}x{grid_w} patches; lower max_pixels={max_pixels}"
        ) from error
    return patches, np.array(grid_thw, dtype=np.int64)


def normalise(
    picture: Image.Image, image_mean: Sequence[float], image_std: Sequence[float]
) -> npt.NDArray[np.float32]:
    """Pixels as a tower takes them, uncut.

    Args:
        picture: Mode RGB.
        image_mean: Per channel, of values in [0, 1].
        image_std: Per channel, of values in [0, 1].

    Returns:
        float32 [height, width, 3], C-contiguous.
    """
    table = _normalised_bytes(tuple(image_mean), tuple(image_std))
    return np.take(table, np.asarray(picture) + np.array([0, 256, 512], np.uint16), mode="clip")


def patchify(
    pixels: npt.NDArray[np.uint8],
    *,
    patch_size: int = 14,
    merge_size: int = 2,
    temporal_patch_size: int = 2,
    image_mean: Sequence[float] = CLIP_MEAN,
    image_std: Sequence[float] = CLIP_STD,
) -> npt.NDArray[np.float32]:
    """Normalise and cut pixels whose sides are multiples of patch_size * merge_size.

    Args:
        pixels: uint8 [height, width, 3].
        patch_size: As for :func:`preprocess`.
        merge_size: As for :func:`preprocess`.
        temporal_patch_size: As for :func:`preprocess`.
        image_mean: As for :func:`preprocess`.
        image_std: As for :func:`preprocess`.

    Returns:
        As the first result of :func:`preprocess`.
    """
    height, width, _ = pixels.shape
    grid_h, grid_w = height // patch_size, width // patch_size
    table = _normalised_bytes(tuple(image_mean), tuple(image_std))
    channel_start = np.tile(np.array([0, 256, 512], np.uint16), width)
    rows = pixels.reshape(grid_h // merge_size, merge_size * patch_size, width * 3)
    row_shape = (merge_size, patch_size, grid_w // merge_size, merge_size, patch_size, 3)
    patches = np.empty(
        (
            *(grid_h // merge_size, grid_w // merge_size, merge_size, merge_size),
            *(3, temporal_patch_size, patch_size, patch_size),
        ),
        dtype=np.float32,
    )
    # One row of tokens at a time keeps what is between pixels and patches in the cache.
    for row, out in zip(rows, patches, strict=True):
        values = np.take(table, row + channel_start, mode="clip").reshape(row_shape)
        out[...] = values.transpose(2, 0, 3, 5, 1, 4)[:, :, :, :, None]
    return patches.reshape(grid_h * grid_w, 3 * temporal_patch_size * patch_size**2)


@lru_cache(maxsize=16)
def _normalised_bytes(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[Any]:
    """What each byte of each channel becomes, float32 [3 * 256].

    The roundings are the reference's: the product in float64, stored as float32, then
    subtraction and division in float32.
    """
    scaled = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
    table = (scaled - np.array(mean, np.float32)[:, None]) / np.array(std, np.float32)[:, None]
    table = table.ravel()
    table.setflags(write=False)
    return table
