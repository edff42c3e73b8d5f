"""Patches, grids and pictures of every shape, dtype and order: right vectors or typed errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jmm import Embedder, JmmError, VisionTokens
from support import fuzz, tiny

N_ELEM = 1176
EDGES = (0, 1, 3, -1, -2, 2**15, 2**31 - 1, 2**31, 2**32, 2**63 - 1)
VALUES = (float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-45, 1e4)
DTYPES = (">f4", "<f8", "<f2", "<i4", "u1", "?", "<c8", "O", "U3")
ORDERS = ("C", "F", "reversed", "columns", "every other", "read-only", "broadcast", "list")

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    with fuzz.load(fuzz.jina(tmp_path_factory.mktemp("arrays"))) as loaded:
        yield loaded


def ordered(values: Array, order: str) -> Any:
    """The same values in memory as ``order`` says; "broadcast" has the first row everywhere."""
    if order == "list":
        return values.tolist()
    if order == "broadcast" and values.ndim and len(values):
        return np.broadcast_to(values[:1], values.shape)
    if order == "reversed" and values.ndim:
        return values[::-1].copy()[::-1]
    if order == "columns" and values.ndim > 1:
        return np.concatenate([values, values], axis=1)[:, : values.shape[1]]
    if order == "every other" and values.ndim:
        return np.repeat(values, 2, axis=0)[::2]
    if order == "F":
        return np.asfortranarray(values)
    if order == "read-only":
        values.flags.writeable = False
    return values


FAULTS = ("side", "agreeing side", "signs", "rows", "columns", "value", "dtype", "shape", "kind")


@st.composite
def patches_and_grids(draw: st.DrawFn) -> tuple[Any, Any]:
    """What `encode_patches` takes in any order in memory, half of them with faults."""
    faults = draw(st.sets(st.sampled_from(FAULTS), max_size=2)) if draw(st.booleans()) else set()
    side = st.sampled_from((2, 2, 4, 6, 10, 16))
    grid = st.tuples(st.just(1), side, side).map(list)
    grids: list[list[int]] = draw(st.lists(grid, min_size=0, max_size=4))
    rows = sum(t * h * w for t, h, w in grids)
    if grids and faults & {"side", "agreeing side"}:
        edge = draw(st.sampled_from(EDGES) | st.integers(-64, 64))
        draw(st.sampled_from(grids))[draw(st.integers(0, 2))] = edge
        if "agreeing side" in faults:
            rows = min(abs(sum(t * h * w for t, h, w in grids)), 2048)
    if grids and "signs" in faults:  # with a product that agrees
        grids[0][1:] = [-side for side in grids[0][1:]]
    rows += draw(st.sampled_from((1, -1, 4, -4))) if "rows" in faults else 0
    columns = (
        draw(st.sampled_from((N_ELEM - 1, N_ELEM * 2, 0, 3))) if "columns" in faults else N_ELEM
    )
    seed = draw(st.integers(0, 2**16))
    array = np.random.default_rng(seed).standard_normal((max(rows, 0), columns)).astype(np.float32)
    if array.size and "value" in faults:
        array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(VALUES))
    if "dtype" in faults:
        with np.errstate(all="ignore"):
            array = array.astype(draw(st.sampled_from(DTYPES)))
    if "shape" in faults:
        array = array.reshape(draw(st.sampled_from(((-1,), (1, *array.shape), array.shape[::-1]))))
    patches = ordered(array, draw(st.sampled_from(ORDERS)))
    asked: Any = grids[0] if len(grids) == 1 and draw(st.booleans()) else grids
    kind = draw(st.sampled_from(("list", "i8", "i4", "u8")))
    if "kind" in faults:
        kind = draw(st.sampled_from(("f8", "odd")))
    if kind == "odd":
        asked = draw(st.sampled_from((None, "1 4 6", [[1, 4]], [[[1, 4, 6]]], {}, [[1], [2, 3]])))
    elif kind != "list":
        with np.errstate(all="ignore"):
            asked = np.array(asked).astype(kind)
    return patches, asked


GOOD = np.random.default_rng(0).standard_normal((24, N_ELEM)).astype(np.float32), [1, 4, 6]


@fuzz.examples(30)
@given(patches_and_grids(), st.sampled_from(("raise", "nan")), st.sampled_from((None, 1, 2)))
@example((GOOD[0], [1, -4, -6]), "raise", None)
@example((GOOD[0][:0], []), "raise", None)
def test_patches(
    embedder: Embedder, given_: tuple[Any, Any], on_error: Any, batch_size: int | None
) -> None:
    patches, grids = given_
    still = embedder.encode_patches(*GOOD)
    rows = fuzz.outcome(
        lambda: embedder.encode_patches(patches, grids, on_error=on_error, batch_size=batch_size),
        counted=True,
    )
    if not isinstance(rows, JmmError):
        right, sizes = np.asarray(patches), np.reshape(np.array(grids, np.int64), (-1, 3))
        stops = np.cumsum(sizes.prod(axis=1))
        one = np.size(grids) == 3 and np.ndim(grids) == 1
        assert rows.shape == ((embedder.dim,) if one else (len(sizes), embedder.dim))
        for row, grid, stop in zip(rows.reshape(-1, embedder.dim), sizes, stops, strict=True):
            own = np.array(right[stop - grid.prod() : stop], np.float32, order="C")
            alone = fuzz.outcome(
                lambda own=own, grid=grid: embedder.encode_patches(own, grid.tolist())
            )
            if isinstance(alone, JmmError):
                assert on_error == "nan"
                assert np.isnan(row).all()
            else:
                np.testing.assert_array_equal(row, alone)
    np.testing.assert_array_equal(embedder.encode_patches(*GOOD), still)


@fuzz.examples(30)
@given(st.lists(patches_and_grids(), min_size=1, max_size=3))
def test_patches_at_the_native_boundary(embedder: Embedder, given_: list[tuple[Any, Any]]) -> None:
    """Below the checks of Python, each array with each grid that comes along."""
    still = embedder.encode_patches(*GOOD)
    pictures = [(GOOD[0], 4, 6)]
    for patches, grids in given_:
        for grid in grids if isinstance(grids, list) else [grids]:
            pictures.append((patches, *(grid[1:] if isinstance(grid, list) else (grid, 2))))
    for some in itertools.chain([pictures], ([picture] for picture in pictures)):
        # not part of the public interface: a wrong buffer or number is what Cython says of it
        try:
            rows = embedder._engine.encode_vision(some)
        except (JmmError, ValueError, TypeError, OverflowError, AttributeError):
            continue
        for (_, grid_h, grid_w), values in zip(some, rows, strict=True):
            assert values.shape == (grid_h * grid_w // 4, embedder._engine.n_embd_vision)
    np.testing.assert_array_equal(embedder.encode_patches(*GOOD), still)


@st.composite
def pictures(draw: st.DrawFn) -> Any:
    """An array that is a picture, or nearly."""
    side = st.sampled_from((1, 2, 13, 27, 28, 29, 57, 90)) | st.integers(1, 120)
    shape = draw(side), draw(side), draw(st.sampled_from((3, 3, 3, 4, 1, 2, 5)))
    values = np.random.default_rng(draw(st.integers(0, 2**16))).integers(0, 256, shape)
    array = values.astype(draw(st.sampled_from(("u1",) * 12 + DTYPES)))
    if draw(st.integers(0, 4)) == 0:
        cut = draw(st.sampled_from((np.s_[..., 0], np.s_[:0], np.s_[:, :0], np.s_[None], np.s_[0])))
        array = array[cut]
    order = draw(st.sampled_from(ORDERS[:-1]))
    return ordered(array, order)


@fuzz.examples(30)
@given(st.lists(pictures(), max_size=4), st.sampled_from(("raise", "nan")))
def test_vision(embedder: Embedder, images: list[Any], on_error: Any) -> None:
    still = embedder.encode_images(tiny.picture(4, 6))
    encoded = fuzz.outcome(lambda: embedder.encode_vision(images, on_error=on_error), counted=True)
    if not isinstance(encoded, JmmError):
        assert len(encoded) == len(images)
        for image, tokens in zip(images, encoded, strict=True):
            alone = fuzz.outcome(lambda image=image: embedder.encode_vision([image])[0])
            if isinstance(alone, JmmError):
                assert tokens is None
                continue
            assert isinstance(tokens, VisionTokens)
            np.testing.assert_array_equal(tokens.values, alone.values)
            np.testing.assert_array_equal(
                embedder.encode_images(tokens), embedder.encode_images([image])[0]
            )
    np.testing.assert_array_equal(embedder.encode_images(tiny.picture(4, 6)), still)
