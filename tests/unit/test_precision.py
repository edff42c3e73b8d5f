"""Codes by hand, dims that are no multiple of 8, and what is refused."""

from __future__ import annotations

import logging
import re
import warnings

import numpy as np
import pytest

from jmm import InputError, calibrate, quantize

# Steps of 1 from -100, of 0.5 from 0, and a component that never changes.
RANGES = np.array([[-100, 0, 7], [155, 127.5, 7]], np.float32)
VECTORS = np.array(
    [
        [-100, 0, 7],
        [155, 127.5, 7],
        [-99.5, 0.5, 7],
        [27.25, 64.25, 8.5],
        [-1e30, -1, 6.5],
        [1e30, 128, 1e30],
    ],
    np.float32,
)
UINT8 = [[0, 0, 0], [255, 255, 0], [0, 1, 0], [127, 128, 1], [0, 0, 0], [255, 255, 255]]
INT8 = [[c - 128 for c in row] for row in UINT8]

# Nine components: above 0 is a one, 0 and -0 are none; the second byte is filled with zeros.
SIGNS = np.array(
    [
        [1, -1, 0, -0.0, 2, 1e-45, -1e-45, 3, 4],
        [-1, -1, -1, -1, -1, -1, -1, -1, -1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ],
    np.float32,
)
UBINARY = [[0b10001101, 0b10000000], [0, 0], [255, 128]]
BINARY = [[141 - 128, 0], [-128, -128], [127, 0]]


@pytest.mark.parametrize(
    ("precision", "right", "dtype"), [("uint8", UINT8, np.uint8), ("int8", INT8, np.int8)]
)
def test_steps_by_hand(precision: str, right: list[list[int]], dtype: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = quantize(VECTORS, precision, RANGES)  # type: ignore[arg-type]
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, right)
        for row, code in zip(VECTORS, right, strict=True):
            one = quantize(row, precision, RANGES)  # type: ignore[arg-type]
            assert one.dtype == dtype
            np.testing.assert_array_equal(one, code)


@pytest.mark.parametrize(
    ("precision", "right", "dtype"), [("ubinary", UBINARY, np.uint8), ("binary", BINARY, np.int8)]
)
def test_bits_by_hand(precision: str, right: list[list[int]], dtype: type) -> None:
    got = quantize(SIGNS, precision)  # type: ignore[arg-type]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(quantize(SIGNS[0], precision), right[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(("dim", "n_bytes"), [(1, 1), (7, 1), (8, 1), (9, 2), (128, 16)])
def test_bytes_of_a_row(dim: int, n_bytes: int) -> None:
    ones = np.ones((2, dim), np.float32)
    for precision in ("binary", "ubinary"):
        assert quantize(ones, precision).shape == (2, n_bytes)  # type: ignore[arg-type]
    assert np.unpackbits(quantize(ones, "ubinary")[0]).sum() == dim


def test_float32_is_not_copied() -> None:
    assert quantize(VECTORS, "float32") is not None
    assert np.shares_memory(quantize(VECTORS, "float32"), VECTORS)
    rows = np.array([[np.nan, np.inf]], np.float32)
    np.testing.assert_array_equal(quantize(rows, "float32"), rows)


def test_other_floats_are_cast_first() -> None:
    for dtype in (np.float16, np.float64):
        rows = VECTORS[:4].astype(dtype)
        np.testing.assert_array_equal(quantize(rows, "uint8", RANGES.tolist()), UINT8[:4])
    assert quantize([0.5, -0.5], "float32").dtype == np.float32


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
def test_no_rows(precision: str) -> None:
    got = quantize(np.empty((0, 9), np.float32), precision)  # type: ignore[arg-type]
    assert got.shape == (0, 2 if precision.endswith("binary") else 9)
    assert got.dtype == {"float32": "f4", "int8": "i1", "binary": "i1"}.get(precision, "u1")


def test_calibration() -> None:
    got = calibrate(VECTORS[:4])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [[-100, 0, 7], [155, 127.5, 8.5]])


def test_own_ranges_are_those_of_calibrate(caplog: pytest.LogCaptureFixture) -> None:
    rows = np.random.default_rng(0).standard_normal((100, 5)).astype(np.float32)
    with caplog.at_level(logging.WARNING, "jmm"):
        for precision in ("int8", "uint8"):
            own = quantize(rows, precision)  # type: ignore[arg-type]
            given = quantize(rows, precision, calibrate(rows))  # type: ignore[arg-type]
            np.testing.assert_array_equal(own, given)
    assert not caplog.records


def test_few_vectors_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "jmm"):
        quantize(VECTORS[:4], "int8")
    message = "quantization ranges come from 4 vectors alone; calibrate on a few hundred"
    assert [record.getMessage() for record in caplog.records] == [message]


def test_one_vector_has_no_ranges() -> None:
    for one in (VECTORS[0], VECTORS[:1]):
        with pytest.raises(InputError, match="one vector has no ranges; give ranges=calibrate"):
            quantize(one, "int8")
        with pytest.raises(InputError, match=r"shape \[.*\]; ranges need \[n, dim\]"):
            calibrate(one)


def test_the_input_stays() -> None:
    vectors, ranges = VECTORS.copy(), RANGES.copy()
    for precision in ("int8", "uint8"):
        quantize(vectors, precision, ranges)  # type: ignore[arg-type]
    for precision in ("binary", "ubinary"):
        quantize(vectors, precision)  # type: ignore[arg-type]
    np.testing.assert_array_equal(vectors, VECTORS)
    np.testing.assert_array_equal(ranges, RANGES)


def test_steps_too_small_to_divide_by() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    rows = np.array([[0], [tiny], [1]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(quantize(rows, "uint8", [[0.0], [tiny]]), [[0], [0], [1]])
        got = quantize(rows, "uint8", [[0.0], [tiny * 255]])
    np.testing.assert_array_equal(got, [[0], [1], [255]])


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_without_a_code(precision: str, bad: float) -> None:
    rows = VECTORS.copy()
    rows[2, 1] = bad
    ranges = RANGES if precision.endswith("int8") else None
    message = f"component 1 is {bad}; finite is needed"
    with pytest.raises(InputError, match=f"^item 2: {message}$") as caught:
        quantize(rows, precision, ranges)  # type: ignore[arg-type]
    assert caught.value.index == 2
    with pytest.raises(InputError, match=f"^{message}$"):
        quantize(rows[2], precision, ranges)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^item 2"):
        calibrate(rows)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (VECTORS[:1].astype(np.int8), "vectors: dtype is int8; float32 is needed"),
        (VECTORS[None], "vectors have shape [1, 6, 3]; [n, dim] or [dim] is needed"),
        (np.float32(1), "shape []"),
        (1.0, "shape []"),
        (np.empty((3, 0), np.float32), "shape [3, 0]"),
        ([[1.0], [1.0, 2.0]], "cannot be read as an array"),
    ],
)
def test_other_vectors_are_refused(vectors: object, message: str) -> None:
    for precision in ("float32", "int8", "binary"):
        with pytest.raises(InputError) as caught:
            quantize(vectors, precision)  # type: ignore[arg-type]
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        (RANGES[:, :2], "ranges have shape [2, 2]; [2, 3] is needed"),
        (RANGES[0], "ranges have shape [3]"),
        (RANGES[::-1], "ranges of component 0 are 155.0 to -100.0; minimum <= maximum"),
        ([[0, np.nan, 0], [1, 1, 1.0]], "ranges of component 1 are nan to 1.0"),
        ([[0, 0, 0], [1, 1, np.inf]], "ranges of component 2 are 0.0 to inf"),
        ([[0, 0, -3e38], [1, 1, 3e38]], "not beyond float32 apart"),
        (RANGES.astype(np.int32), "ranges: dtype is int32"),
    ],
)
def test_other_ranges_are_refused(ranges: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        quantize(VECTORS, "int8", ranges)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize("precision", ["float32", "binary", "ubinary"])
def test_ranges_where_there_are_none(precision: str) -> None:
    with pytest.raises(InputError, match="ranges are for int8 and uint8"):
        quantize(VECTORS, precision, RANGES)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["int4", "", None, 8, ["int8"]])
def test_other_precisions(precision: object) -> None:
    allowed = "allowed are 'float32', 'int8', 'uint8', 'binary', 'ubinary'"
    with pytest.raises(InputError, match=re.escape(f"precision is {precision!r}; {allowed}")):
        quantize(VECTORS, precision)  # type: ignore[arg-type]
