"""Legal dimensions, and rows that have no direction."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from jmm.errors import InputError
from jmm.vectors import check_dim, finish

JINA = (128, 256, 512, 1024, 2048)


def test_truncation_comes_before_normalisation() -> None:
    rows = np.array([[3, 4, 12], [0, -2, 5]], np.float32)
    whole = finish(rows, 3, normalize=True)
    np.testing.assert_array_equal(whole[0], np.array([3 / 13, 4 / 13, 12 / 13], np.float32))
    cut = finish(rows, 2, normalize=True)
    np.testing.assert_array_equal(cut, np.array([[0.6, 0.8], [0, -1]], np.float32))


def test_rows_without_a_direction() -> None:
    rows = np.array([[0, 0, 7], [np.nan, 3, 4], [np.nan] * 3, [0, 3, 4]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = finish(rows, 2, normalize=True)
    np.testing.assert_array_equal(got, np.array([[0, 0], [np.nan] * 2, [np.nan] * 2, [0, 1]]))


def test_greatest_and_least_numbers() -> None:
    great, least = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    got = finish(np.array([[great, -great], [least, 0]], np.float32), 2, normalize=True)
    half = np.float32(np.sqrt(0.5))
    np.testing.assert_array_equal(got, np.array([[half, -half], [1, 0]], np.float32))


def test_no_rows() -> None:
    assert finish(np.empty((0, 4), np.float32), 3, normalize=True).shape == (0, 3)


@pytest.mark.parametrize(
    ("asked", "dim", "legal", "kept"),
    [
        (None, 2048, JINA, 2048),
        (128, 2048, JINA, 128),
        (2048, 2048, JINA, 2048),
        (np.int64(256), 2048, JINA, 256),
        (64, 64, JINA, 64),
        (None, 64, JINA, 64),
        (1, 64, (), 1),
        (64, 64, (), 64),
    ],
)
def test_legal_dims(asked: int | None, dim: int, legal: tuple[int, ...], kept: int) -> None:
    got = check_dim(asked, dim, legal)
    assert type(got) is int
    assert got == kept


@pytest.mark.parametrize("asked", [0, -128, 100, 129, 4096, 128.0, True, "128", [128], 2**63])
def test_other_dims_are_refused_with_the_legal_ones(asked: object) -> None:
    message = f"truncate_dim is {asked!r}; allowed are 128, 256, 512, 1024, 2048"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        check_dim(asked, 2048, JINA)  # type: ignore[arg-type]


def test_dims_above_the_models_own_are_not_offered() -> None:
    with pytest.raises(InputError, match=r"truncate_dim is 512; allowed are 128, 256, 320$"):
        check_dim(512, 320, JINA)


@pytest.mark.parametrize("asked", [0, 65, True, 1.0])
def test_any_dim_of_a_model_without_legal_ones(asked: object) -> None:
    with pytest.raises(InputError, match=f"^truncate_dim is {asked!r}; allowed are 1 to 64$"):
        check_dim(asked, 64, ())  # type: ignore[arg-type]
