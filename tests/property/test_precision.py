"""Codes for vectors of every magnitude, against their definition in double."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from jmm import calibrate, quantize

Rows = npt.NDArray[np.float32]
SHAPES = array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=20)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = arrays(np.float32, SHAPES, elements=FINITE)
MODEST = arrays(np.float32, SHAPES, elements=st.floats(-(2.0**100), 2.0**100, width=32))


@given(MODEST, st.data())
def test_a_code_tells_the_value_to_a_step(rows: Rows, data: st.DataObject) -> None:
    ranges = calibrate(rows)
    low, high = ranges.astype(np.float64)
    step = (high - low) / 255
    codes = quantize(rows, "uint8", ranges)
    # Rounding of the difference and of the step, in steps of 255 at most.
    slack = step * 1e-3 + np.abs(ranges).max(axis=0) * 2.0**-22 + 1e-42
    error = rows - (low + codes * step)
    assert ((error >= -slack) & (error <= step + slack)).all()
    np.testing.assert_array_equal(quantize(rows, "int8", ranges), codes.astype(np.int16) - 128)
    other = data.draw(st.integers(0, len(rows) - 1))
    np.testing.assert_array_equal(quantize(rows[other], "uint8", ranges), codes[other])


@given(ROWS)
def test_bits_are_signs(rows: Rows) -> None:
    codes = quantize(rows, "ubinary")
    bits = np.unpackbits(codes, axis=1)
    np.testing.assert_array_equal(bits[:, : rows.shape[1]], rows > 0)
    assert not bits[:, rows.shape[1] :].any()
    np.testing.assert_array_equal(quantize(rows, "binary"), codes.astype(np.int16) - 128)
