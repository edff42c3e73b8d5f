"""What holds for every picture: the grid's bounds, equal copies, and no foreign exception."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from jmm.errors import InputError, JmmError
from jmm.images import to_rgb
from jmm.preprocess import grid_for, patchify, preprocess, smart_resize

sides = st.integers(1, 10_000)
limits = st.tuples(st.integers(1, 20_000_000), st.integers(1, 20_000_000)).map(sorted)
FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM", "ICO", "TGA", "JPEG2000")


def file_of(file_format: str) -> bytes:
    pixels = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(file, file_format, exif=exif)
    return file.getvalue()


FILES = {name: file_of(name) for name in FORMATS}


@given(height=sides, width=sides, low_high=limits, factor=st.sampled_from([14, 28, 32]))
def test_smart_resize(height: int, width: int, low_high: list[int], factor: int) -> None:
    low, high = low_high
    options = {"factor": factor, "min_pixels": low, "max_pixels": high}
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(InputError):
            smart_resize(height, width, **options)
        return
    new_height, new_width = smart_resize(height, width, **options)
    assert new_height % factor == new_width % factor == 0
    assert new_height >= factor
    assert new_width >= factor
    if min(new_height, new_width) > factor and low * 4 < high:
        assert new_height * new_width <= high
        assert new_height * new_width >= low
    assert smart_resize(width, height, **options) == (new_width, new_height)


@settings(max_examples=60)
@given(height=st.integers(1, 400), width=st.integers(1, 400), seed=st.integers(0, 2**32 - 1))
def test_patches(height: int, width: int, seed: int) -> None:
    if max(height, width) > 200 * min(height, width):
        return
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    options = {"min_pixels": 3136, "max_pixels": 60_000}
    patches, grid_thw = preprocess(Image.fromarray(pixels), **options)
    assert tuple(grid_thw) == grid_for(height, width, **options)
    frames = patches.reshape(-1, 3, 2, 14, 14)
    np.testing.assert_array_equal(frames[:, :, 0], frames[:, :, 1])
    again, _ = preprocess(Image.fromarray(pixels), **options)
    np.testing.assert_array_equal(patches.view(np.uint32), again.view(np.uint32))


@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_patchify_loses_nothing(rows: int, columns: int, seed: int) -> None:
    shape = (rows * 28, columns * 28, 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    patches = patchify(pixels, image_mean=(0, 0, 0), image_std=(1, 1, 1))
    back = (
        patches.reshape(rows, columns, 2, 2, 3, 2, 14, 14)[:, :, :, :, :, 0]
        .transpose(0, 2, 5, 1, 3, 6, 4)
        .reshape(shape)
    )
    np.testing.assert_array_equal(np.rint(back * 255).astype(np.uint8), pixels)


@settings(max_examples=300)
@given(name=st.sampled_from(FORMATS), data=st.data())
def test_damaged_files_raise_our_errors_only(name: str, data: st.DataObject) -> None:
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    try:
        image = to_rgb(bytes(content[:end]), max_image_pixels=1_000_000)
    except JmmError:
        return
    assert image.mode == "RGB"
    assert image.tobytes()
