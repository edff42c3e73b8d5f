"""What is embedded: random pictures and texts, the same for every engine with the same seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from support import tiny

SIDE = tiny.PATCH * tiny.MERGE
# Two markers stand around a picture, as plain Qwen2.5-VL has it.
MARKERS = ("<|vision_start|>", "<|vision_end|>")


def parse_size(text: str) -> tuple[int, int]:
    """Height and width of "784" or "784x1120" in pixels."""
    height, _, width = text.partition("x")
    sides = int(height), int(width or height)
    if min(sides) < SIDE or sides[0] % SIDE or sides[1] % SIDE:
        raise ValueError(f"the size is {text!r}; sides must be multiples of {SIDE} pixels")
    return sides


def image_tokens(height: int, width: int) -> int:
    return height * width // SIDE**2


def pictures(height: int, width: int, count: int, seed: int) -> list[NDArray[np.uint8]]:
    """uint8 [height, width, 3] each."""
    return [tiny.pixels(height, width, seed * 1000 + i) for i in range(count)]


def patches(images: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """float32 [sum of patches, 1176], as the reference's processor returns them."""
    return np.concatenate([tiny.patches(image) for image in images])


def grid_thw(images: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
    sides = [(1, image.shape[0] // tiny.PATCH, image.shape[1] // tiny.PATCH) for image in images]
    return np.array(sides, np.int64)


def texts(n_texts: int, n_tokens: int, seed: int) -> list[str]:
    """Random letters, each of them one token of the benchmarks' vocabulary."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(ord("a"), ord("z") + 1, (n_texts, n_tokens), dtype=np.uint8)
    return [row.tobytes().decode() for row in letters]


def mixed_texts(n_texts: int, longest: int, seed: int) -> list[str]:
    """Texts of lengths spread evenly from 1 to ``longest`` tokens, in random order."""
    lengths = np.linspace(1, longest, n_texts).round().astype(int)
    order = np.random.default_rng(seed).permutation(n_texts)
    whole = texts(n_texts, longest, seed)
    return [text[: lengths[i]] for text, i in zip(whole, order, strict=True)]
