"""Truncation and normalisation against float64, for rows of every magnitude."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from jmm.vectors import finish

Rows = npt.NDArray[np.float32]
ROWS = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


def unit(rows: Rows) -> npt.NDArray[np.float64]:
    """Unit rows in float64; scaled first, so that no square overflows or vanishes."""
    wide = rows.astype(np.float64)
    scale = np.abs(wide).max(axis=1, keepdims=True)
    scaled = np.divide(wide, scale, out=np.zeros_like(wide), where=scale > 0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, norms, out=np.zeros_like(wide), where=norms > 0)


@given(ROWS, st.data())
def test_first_components_at_unit_length(rows: Rows, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, rows.shape[1]))
    got = finish(rows, n, normalize=True)
    assert got.dtype == np.float32
    assert got.shape == (len(rows), n)
    assert got.flags.c_contiguous
    np.testing.assert_array_max_ulp(got, unit(rows[:, :n]).astype(np.float32), maxulp=1)


@given(ROWS, st.data())
def test_without_normalisation_the_components_stay(rows: Rows, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, rows.shape[1]))
    got = finish(rows, n, normalize=False)
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, rows[:, :n])


@given(ROWS)
def test_rows_do_not_touch_each_other(rows: Rows) -> None:
    together = finish(rows, rows.shape[1], normalize=True)
    for row, got in zip(rows, together, strict=True):
        np.testing.assert_array_equal(finish(row[None], len(row), normalize=True)[0], got)


@given(ROWS)
def test_the_input_stays(rows: Rows) -> None:
    before = rows.copy()
    finish(rows, rows.shape[1], normalize=True)
    np.testing.assert_array_equal(rows, before)
