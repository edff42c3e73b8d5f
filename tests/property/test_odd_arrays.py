"""Arrays of any dtype, layout and content: what they hold, or InputError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from jmm import arguments
from jmm.errors import InputError, OutOfMemoryError
from jmm.images import to_rgb
from jmm.pictures import VisionTokens

N_ELEM = 6
DTYPES = st.one_of(
    npst.scalar_dtypes(),
    npst.array_dtypes(max_size=2),
    npst.byte_string_dtypes(),
    npst.unicode_string_dtypes(),
    st.just(np.dtype(object)),
)


@st.composite
def layouts(draw: st.DrawFn, array: NDArray[Any]) -> NDArray[Any]:
    """The same values in another layout: order, strides of any sign, unaligned, frozen."""
    layout = draw(st.sampled_from(("C", "F", "reversed", "sparse", "unaligned", "frozen", "sub")))
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "reversed":
        return array[..., ::-1].copy()[..., ::-1]
    if layout == "sparse":
        return np.repeat(array, 2, axis=0)[::2]
    if layout == "unaligned":
        raw = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]
        return raw.view(array.dtype).reshape(array.shape)
    array = array.copy()
    array.flags.writeable = layout != "frozen"
    return array.view(np.recarray) if layout == "sub" else array


@given(
    data=st.data(),
    pixels=npst.arrays(
        np.uint8,
        st.one_of(
            npst.array_shapes(min_dims=2, max_dims=2, max_side=9),
            st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from((1, 3))),
        ),
    ),
)
def test_pixels_in_any_layout(data: st.DataObject, pixels: NDArray[np.uint8]) -> None:
    got = np.asarray(to_rgb(data.draw(layouts(pixels))))
    wanted = pixels if pixels.ndim == 3 else pixels[:, :, None]
    np.testing.assert_array_equal(got, np.broadcast_to(wanted, got.shape))


@given(
    array=DTYPES.flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0))
    )
)
def test_any_array_as_a_picture(array: NDArray[Any]) -> None:
    channels = array.shape[2] if array.ndim == 3 else 1
    fits = array.dtype == np.uint8 and array.ndim in (2, 3) and channels in (1, 3, 4)
    if fits and array.size:
        assert to_rgb(array).size == array.shape[1::-1]
    else:
        with pytest.raises(InputError):
            to_rgb(array)


@given(
    data=st.data(),
    grids=npst.arrays(
        st.sampled_from((np.int64, np.uint8, np.dtype(">i4"), np.uint64)),
        st.tuples(st.integers(0, 4), st.just(3)),
        elements=st.integers(1, 3),
    ),
)
def test_patches_and_grids_that_fit(data: st.DataObject, grids: NDArray[Any]) -> None:
    n_patches = int(grids.astype(int).prod(axis=1).sum())
    rows = np.arange(n_patches * N_ELEM, dtype=np.float32).reshape(n_patches, N_ELEM)
    given_rows = data.draw(layouts(rows))
    items, one = arguments.split_patches(given_rows, grids, N_ELEM)
    assert not one
    assert [grid.tolist() for _, grid in items] == grids.astype(int).tolist()
    parts = [part for part, _ in items]
    np.testing.assert_array_equal(np.concatenate([rows[:0], *parts]), rows)
    for part, grid in items:
        if grid[0] == 1:
            checked = arguments.check_patches((part, grid))
            assert checked.flags.c_contiguous
            assert checked.flags.aligned
            assert type(checked) is np.ndarray


@given(
    patches=DTYPES.flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    grids=DTYPES.flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
)
def test_any_arrays_as_patches(patches: NDArray[Any], grids: NDArray[Any]) -> None:
    try:
        items, _ = arguments.split_patches(patches, grids, N_ELEM)
    except InputError:
        return
    assert patches.dtype == np.float32
    assert sum(len(part) for part, _ in items) == len(patches)


@given(
    rows=npst.arrays(np.float32, (4, N_ELEM), elements=st.floats(width=32)),
    scale=st.sampled_from((1.0, np.finfo(np.float32).max)),
)
def test_only_finite_patches(rows: NDArray[np.float32], scale: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        rows = rows * np.float32(scale)
    item = (rows, np.array([1, 2, 2]))
    if np.isfinite(rows).all():
        np.testing.assert_array_equal(arguments.check_patches(item), rows)
    else:
        with pytest.raises(InputError, match="finite is needed"):
            arguments.check_patches(item)


class Gives:
    """Has an ``__array__`` that gives anything."""

    def __init__(self, result: object) -> None:
        self.result = result

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


ROWS = np.ones((4, N_ELEM), np.float32)


def test_what_gives_an_array() -> None:
    items, one = arguments.split_patches(Gives(ROWS), Gives(np.array([1, 2, 2])), N_ELEM)
    assert one
    np.testing.assert_array_equal(items[0][0], ROWS)
    for result in (RuntimeError("mine"), KeyError("mine"), None, "text", [1, 2], 5):
        with pytest.raises(InputError):
            arguments.split_patches(Gives(result), [1, 2, 2], N_ELEM)
        with pytest.raises(InputError):
            arguments.split_patches(ROWS, Gives(result), N_ELEM)
    with pytest.raises(OutOfMemoryError):
        arguments.split_patches(Gives(MemoryError()), [1, 2, 2], N_ELEM)


def test_masked_patches() -> None:
    rows = np.ma.array(ROWS)
    assert len(arguments.split_patches(rows, [1, 2, 2], N_ELEM)[0]) == 1
    rows[1, 1] = np.ma.masked
    with pytest.raises(InputError, match="masked values"):
        arguments.split_patches(rows, [1, 2, 2], N_ELEM)


@pytest.mark.parametrize("grid", [[1, 2**63, 2**63], [2**64, 1, 1], [0, 2, 2], [1, 2.0, 2]])
def test_grids_out_of_any_range(grid: list[Any]) -> None:
    with pytest.raises(InputError, match="grid"):
        arguments.split_patches(ROWS, grid, N_ELEM)


@given(data=st.data(), dim=st.integers(1, 5))
def test_vision_tokens_in_any_layout(data: st.DataObject, dim: int) -> None:
    values = np.arange(4 * dim, dtype=np.float32).reshape(4, dim)
    tokens = VisionTokens(data.draw(layouts(values)), (4, 4), "0")
    np.testing.assert_array_equal(tokens.values, values)
    assert tokens.values.flags.aligned
    assert tokens.values.flags.c_contiguous
