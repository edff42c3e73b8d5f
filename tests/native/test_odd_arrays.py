"""Arrays in any layout through the built-in model, also while another thread writes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import Embedder, InputError, JmmError
from support import tiny

PICTURE = tiny.picture(4, 6)
PATCHES, GRID = tiny.patches(PICTURE), [1, 4, 6]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as built_in:
        yield built_in


def unaligned(array: NDArray[Any]) -> NDArray[Any]:
    raw = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]
    return raw.view(array.dtype).reshape(array.shape)


def test_layouts(embedder: Embedder) -> None:
    wanted = embedder.encode_patches(PATCHES, GRID)
    masked = np.ma.array(PATCHES)
    for layout in (
        unaligned(PATCHES),
        PATCHES[::-1].copy()[::-1],
        masked,
        PATCHES.view(np.recarray),
    ):
        np.testing.assert_array_equal(embedder.encode_patches(layout, GRID), wanted)
    flat = np.broadcast_to(PATCHES[:1], PATCHES.shape)
    np.testing.assert_array_equal(
        embedder.encode_patches(flat, GRID), embedder.encode_patches(flat.copy(), GRID)
    )


@pytest.mark.parametrize("dtype", [">f4", "f2", "f8", "i4", "c8", "O", "S4", "?"])
def test_dtypes(embedder: Embedder, dtype: str) -> None:
    with pytest.raises(InputError, match=r"patches have dtype .*; float32 is needed"):
        embedder.encode_patches(PATCHES.astype(dtype), GRID)


@pytest.mark.parametrize(
    "grid", [[1, -4, -6], [1, 0, 6], [-1, -4, 6], [1, 2**62, 2**62], [1, 3, 8]]
)
def test_grids(embedder: Embedder, grid: list[int]) -> None:
    with pytest.raises(InputError):
        embedder.encode_patches(PATCHES, grid)


def is_finite_or_refused(embedder: Embedder, patches: NDArray[Any]) -> bool:
    try:
        return bool(np.isfinite(embedder.encode_patches(patches, GRID)).all())
    except JmmError as error:
        return error.index == 0


@pytest.mark.parametrize("value", [3e38, -3e38, 1e30, 1e-45])
def test_huge_and_tiny_values(embedder: Embedder, value: float) -> None:
    wanted = embedder.encode_patches(PATCHES, GRID)
    assert is_finite_or_refused(embedder, np.full_like(PATCHES, value))
    np.testing.assert_array_equal(embedder.encode_patches(PATCHES, GRID), wanted)


@contextmanager
def written(array: NDArray[Any], values: list[Any]) -> Iterator[None]:
    """Another thread writes the values over and over."""
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for value in values:
                array[...] = value

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_what_another_thread_writes(embedder: Embedder) -> None:
    """Such a row may be of any moment; what comes after is as before."""
    wanted = embedder.encode_images(PICTURE)
    picture, patches = PICTURE.copy(), PATCHES.copy()
    with written(picture, [0, 255]), written(patches, [0, np.nan, 3e38, -1]):
        for _ in range(20):
            assert np.isfinite(embedder.encode_images(picture)).all()
            assert is_finite_or_refused(embedder, patches)
    np.testing.assert_array_equal(embedder.encode_images(PICTURE), wanted)
