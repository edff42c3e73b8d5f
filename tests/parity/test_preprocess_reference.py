"""Grids and patches equal those of transformers' PIL processor bit for bit, same Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm.images import to_rgb
from jmm.preprocess import grid_for, preprocess

reference = pytest.importorskip(
    "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl",
    reason="needs: pip install transformers==5.24.0",
    exc_type=ImportError,
)
pytestmark = pytest.mark.torch

LIMITS = [(3136, 602112), (3136, 12_845_056), (3136, 3136), (200_000, 250_000), (1, 100_000)]


def sizes(count: int, seed: int) -> list[tuple[int, int]]:
    """Log-uniform heights to 3500, with aspect ratios to 200 on both sides."""
    rng = np.random.default_rng(seed)
    result = []
    while len(result) < count:
        height, width = np.exp(rng.uniform(0, np.log(3500), 2)).astype(int)
        if max(height, width) <= 200 * min(height, width) and height * width <= 2_000_000:
            result.append((int(height), int(width)))
    return result


EDGES = [
    (1, 1), (1, 200), (200, 1), (2, 2), (3, 599), (27, 257), (28, 28), (28, 5600), (42, 70),
    (70, 70), (98, 98), (56, 56), (55, 57), (238, 238), (784, 768), (776, 776), (785, 783),
    (1, 3), (13, 14), (14, 15), (3000, 15), (15, 3000), (1200, 1600), (3000, 2000),
]  # fmt: skip


def assert_equal(image: Image.Image, low: int, high: int, **options: Any) -> None:
    processor = reference.Qwen2VLImageProcessorPil(min_pixels=low, max_pixels=high, **options)
    want = processor(image, return_tensors="np")
    patches, grid_thw = preprocess(image, min_pixels=low, max_pixels=high, **options)
    np.testing.assert_array_equal(grid_thw[None], want["image_grid_thw"])
    assert grid_thw.dtype == want["image_grid_thw"].dtype
    assert patches.dtype == want["pixel_values"].dtype == np.float32
    np.testing.assert_array_equal(patches.view(np.uint32), want["pixel_values"].view(np.uint32))


def picture(height: int, width: int, seed: int) -> Image.Image:
    """Noise over a ramp: every byte value, hard edges, overshoot of the bicubic filter."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 255, width)[None, :, None] * np.array([1, 0.5, 0.1])
    noise = rng.integers(0, 256, (height, width, 3))
    pixels = np.where(rng.random((height, width, 1)) < 0.3, noise, ramp)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_random_sizes(low: int, high: int) -> None:
    for seed, size in enumerate(sizes(60, seed=low + high)):
        assert_equal(picture(*size, seed), low, high)


@pytest.mark.parametrize("size", EDGES, ids=str)
def test_edges(size: tuple[int, int]) -> None:
    assert_equal(picture(*size, 0), 3136, 602112)


@pytest.mark.slow
def test_largest_limit_is_hit() -> None:
    assert_equal(picture(4000, 3600, 0), 3136, 12_845_056)


@pytest.mark.parametrize(
    "options",
    [
        {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
        {"patch_size": 16},
        {"merge_size": 1},
        {"temporal_patch_size": 1},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    assert_equal(picture(300, 451, 0), 3136, 100_000, **options)


def test_grids_alone() -> None:
    for low, high in LIMITS:
        for height, width in sizes(2000, seed=high):
            want = reference.smart_resize(height, width, min_pixels=low, max_pixels=high)
            grid = grid_for(height, width, min_pixels=low, max_pixels=high)
            assert (grid[1] * 14, grid[2] * 14) == want


@pytest.mark.parametrize("mode", ["L", "RGBA", "LA", "P", "1", "CMYK", "YCbCr"])
def test_other_modes_of_the_reference(mode: str) -> None:
    """The reference composites alpha on white too, so to_rgb feeds both the same."""
    alpha = Image.fromarray(np.arange(90 * 120, dtype=np.uint8).reshape(90, 120))
    image = picture(90, 120, 0)
    image.putalpha(alpha)
    image = image.convert("RGB").convert("P") if mode == "P" else image.convert(mode)
    processor = reference.Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=602112)
    want = processor(image, return_tensors="np")["pixel_values"]
    got, _ = preprocess(to_rgb(image), min_pixels=3136, max_pixels=602112)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
