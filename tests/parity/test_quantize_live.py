"""Codes and truncated vectors equal those of sentence-transformers, live."""

from __future__ import annotations

import numpy as np
import pytest

from jmm import calibrate, quantize
from jmm.vectors import finish

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
oracles = pytest.importorskip(
    "support.oracles", reason="see support/oracles.py", exc_type=ImportError
)

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


def unit(seed: int, n: int, dim: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [1, 7, 8, 9, 128, 1001])
@pytest.mark.parametrize("n", [0, 2, 300])
def test_codes(precision: str, dim: int, n: int) -> None:
    rows = unit(dim, n, dim)
    for asked in ({}, {"ranges": calibrate(unit(1, 50, dim))}):
        ranges = asked if precision.endswith("int8") else {}
        got = quantize(rows, precision, **ranges)  # type: ignore[arg-type]
        right = oracles.quantize_embeddings(rows, precision, **ranges)
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_vector(precision: str) -> None:
    row = unit(2, 1, 77)[0]
    ranges = {"ranges": calibrate(unit(3, 50, 77))} if precision.endswith("int8") else {}
    got = quantize(row, precision, **ranges)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, oracles.quantize_embeddings(row, precision, **ranges))


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_values_outside_and_on_the_borders(precision: str) -> None:
    ranges = np.array([[-1, 0, 0.25, -3], [1, 0.1, 0.25, 1e-30]], np.float32)
    values = np.concatenate([ranges, ranges * 5, -ranges, np.linspace(*ranges, 511), ranges * 1e20])
    values = values.astype(np.float32)
    got = quantize(values, precision, ranges)  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        got, oracles.quantize_embeddings(values, precision, ranges=ranges)
    )


def test_calibration_is_theirs() -> None:
    rows, sample = unit(4, 20, 33), unit(5, 200, 33)
    got = quantize(rows, "int8", calibrate(sample))
    right = oracles.quantize_embeddings(rows, "int8", calibration_embeddings=sample)
    np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dim", [128, 256, 512, 1024, 2048])
def test_truncated_and_normalised(dim: int) -> None:
    rows = 7 * unit(6, 30, 2048)
    cut = oracles.truncate_embeddings(rows, dim)
    np.testing.assert_array_equal(finish(rows, dim, normalize=False), cut)
    right = oracles.normalize_embeddings(torch.from_numpy(cut)).numpy()
    np.testing.assert_allclose(finish(rows, dim, normalize=True), right, rtol=0, atol=1e-7)
