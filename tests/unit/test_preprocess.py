"""Grids and patches against the reference rule, written out naively here."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from jmm.errors import InputError
from jmm.preprocess import CLIP_MEAN, CLIP_STD, grid_for, patchify, preprocess, smart_resize

LIMITS = {"min_pixels": 3136, "max_pixels": 602112}


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def reference_patches(
    image: Image.Image,
    grid: tuple[int, int, int],
    patch: int = 14,
    merge: int = 2,
    temporal: int = 2,
    mean: tuple[float, ...] = CLIP_MEAN,
    std: tuple[float, ...] = CLIP_STD,
) -> npt.NDArray[np.float32]:
    """The rule of Qwen2-VL's processor: rescale, normalise, two frames, reshape, transpose."""
    _, grid_h, grid_w = grid
    resized = image.resize((grid_w * patch, grid_h * patch), Image.Resampling.BICUBIC)
    scaled = (np.asarray(resized).astype(np.float64) * (1 / 255)).astype(np.float32)
    normal = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    frames = np.stack([normal.transpose(2, 0, 1)] * temporal)
    cut = frames.reshape(
        1, temporal, 3, grid_h // merge, merge, patch, grid_w // merge, merge, patch
    ).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return np.ascontiguousarray(cut.reshape(grid_h * grid_w, 3 * temporal * patch * patch))


def assert_same_bits(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> None:
    assert got.dtype == want.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


# (height, width) -> (grid_h, grid_w): facts of the reference, 3136 <= area <= 602112.
GRIDS = {
    (1, 1): (4, 4),
    (27, 257): (2, 18),
    (28, 28): (4, 4),
    (70, 70): (4, 4),  # 2.5 tokens round to 2, not to 3
    (98, 98): (8, 8),  # and 3.5 to 4
    (238, 238): (16, 16),
    (10, 1000): (2, 40),
    (70, 100): (4, 8),
    (1, 200): (2, 58),
    (784, 784): (54, 54),
    (1200, 1600): (48, 64),
    (3500, 2500): (64, 46),
}


@pytest.mark.parametrize("size", GRIDS, ids=str)
def test_grid_and_patches(size: tuple[int, int]) -> None:
    image = noise(*size)
    patches, grid_thw = preprocess(image, **LIMITS)
    assert grid_thw.dtype == np.int64
    assert tuple(grid_thw) == (1, *GRIDS[size]) == grid_for(*size, **LIMITS)
    assert patches.shape == (grid_thw.prod(), 1176)
    assert patches.flags.c_contiguous
    assert patches.flags.writeable
    assert_same_bits(patches, reference_patches(image, tuple(grid_thw)))


@pytest.mark.parametrize(
    ("patch", "merge", "temporal"), [(14, 2, 2), (16, 2, 2), (14, 1, 1), (7, 3, 2)]
)
def test_other_geometries(patch: int, merge: int, temporal: int) -> None:
    image = noise(300, 200)
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.3, 0.7)
    patches, grid_thw = preprocess(
        image,
        min_pixels=3136,
        max_pixels=40_000,
        patch_size=patch,
        merge_size=merge,
        temporal_patch_size=temporal,
        image_mean=mean,
        image_std=list(std),
    )
    grid = grid_for(
        300, 200, min_pixels=3136, max_pixels=40_000, patch_size=patch, merge_size=merge
    )
    assert tuple(grid_thw) == grid
    assert_same_bits(patches, reference_patches(image, grid, patch, merge, temporal, mean, std))


def test_patch_order_by_hand() -> None:
    """Red is the row of the pixel's patch, green its column, blue the pixel's place."""
    row, column = np.mgrid[:56, :84]
    pixels = np.dstack([row // 14, column // 14, row % 14 * 14 + column % 14]).astype(np.uint8)
    got = patchify(pixels, image_mean=(0, 0, 0), image_std=(1 / 255,) * 3)
    places = np.rint(got).astype(int).reshape(24, 3, 2, 196)
    assert [tuple(p) for p in places[:6, :2, 0, 0]] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3),
    ]  # fmt: skip
    assert (places[:, :, 0] == places[:, :, 1]).all()
    assert (places[:, :2] == places[:, :2, :, :1]).all()
    assert (places[:, 2] == np.arange(196)).all()


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_no_pixels(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        smart_resize(*size, **LIMITS)


def test_aspect_ratio() -> None:
    assert smart_resize(200, 1, **LIMITS) == (812, 28)
    with pytest.raises(InputError, match=r"6000x28 .* ratio of 214\.3, the limit is 200"):
        smart_resize(28, 6000, **LIMITS)
    with pytest.raises(InputError, match="limit is 200"):
        preprocess(noise(201, 1), **LIMITS)


@pytest.mark.parametrize(("low", "high"), [(0, 100), (-1, 100), (101, 100), (0, 0)])
def test_pixel_limits(low: int, high: int) -> None:
    with pytest.raises(InputError, match="1 <= min_pixels <= max_pixels"):
        smart_resize(100, 100, min_pixels=low, max_pixels=high)


def test_other_modes_are_refused() -> None:
    with pytest.raises(InputError, match="mode RGBA"):
        preprocess(noise(30, 30).convert("RGBA"), **LIMITS)


def test_input_is_not_written() -> None:
    image = noise(56, 56)
    before = image.tobytes()
    patches, _ = preprocess(image, **LIMITS)
    patches[:] = 0
    again, _ = preprocess(image, **LIMITS)
    assert image.tobytes() == before
    assert again.any()


def test_threads_give_equal_bits() -> None:
    image = noise(500, 700)
    want, _ = preprocess(image, **LIMITS)
    results: list[npt.NDArray[np.float32]] = []
    threads = [
        threading.Thread(target=lambda: results.append(preprocess(image, **LIMITS)[0]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for got in results:
        assert_same_bits(got, want)
