"""Pooling by hand, how many tokens are left, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from jmm import InputError, MultiVector, maxsim, pool_tokens
from jmm.vectors.ward import ward_clusters


def at(*degrees: float) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def by_angle(rows: np.ndarray) -> np.ndarray:
    return np.sort(np.rad2deg(np.arctan2(rows[:, 1], rows[:, 0])))


# Two pairs and a triple, far from one another: their means lie halfway.
PAGE = at(0, 90, 10, 200, 100, 202, 198)


def test_means_by_hand() -> None:
    pooled = pool_tokens(PAGE, 2)
    assert pooled.dtype == np.float32
    assert pooled.flags.c_contiguous
    np.testing.assert_allclose(by_angle(pooled), [-160, 5, 95], atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), 1, atol=1e-7)


def test_one_is_left_of_few() -> None:
    for factor in (7, 8, 100, np.int64(9)):
        mean = PAGE.astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(
            pool_tokens(PAGE, factor), [mean / np.linalg.norm(mean)], atol=1e-7
        )
    np.testing.assert_allclose(pool_tokens(at(30)[:1] * 2, 3), at(30), atol=1e-7)


@pytest.mark.parametrize(("n", "factor", "left"), [(9, 2, 4), (9, 3, 3), (10, 3, 3), (780, 4, 195)])
def test_how_many_are_left(n: int, factor: int, left: int) -> None:
    rows = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert pool_tokens(rows, factor).shape == (left, 8)


def test_factor_1_changes_nothing() -> None:
    assert np.shares_memory(pool_tokens(PAGE, 1), PAGE)
    assert pool_tokens(np.asfortranarray(PAGE), 1).flags.c_contiguous
    mv = MultiVector.from_list([PAGE, PAGE[:1]])
    assert pool_tokens(mv, 1) == mv


def test_items_are_pooled_one_by_one() -> None:
    items = [PAGE, PAGE[:1], PAGE[2:], PAGE[::-1]]
    pooled = pool_tokens(MultiVector.from_list(items), 2)
    assert isinstance(pooled, MultiVector)
    for got, item in zip(pooled, items, strict=True):
        np.testing.assert_array_equal(got, pool_tokens(item, 2))
    nothing = MultiVector(np.empty((0, 2), np.float32), [0])
    assert pool_tokens(nothing, 2) == nothing


def test_tokens_that_are_equal_cost_nothing() -> None:
    page = np.repeat(at(0, 50, 120, 250), 3, axis=0)
    np.testing.assert_allclose(by_angle(pool_tokens(page, 3)), [-110, 0, 50, 120], atol=1e-4)
    np.testing.assert_allclose(maxsim(PAGE, pool_tokens(page, 3)), maxsim(PAGE, page), atol=1e-5)
    assert len(pool_tokens(np.repeat(at(40), 9, axis=0), 2)) <= 4


def test_a_mean_without_a_direction_stays_zero() -> None:
    rows = np.array([[1, 0], [-1, 0]], np.float32)
    np.testing.assert_array_equal(pool_tokens(rows, 2), [[0, 0]])


def test_the_input_stays() -> None:
    before = PAGE.copy()
    pool_tokens(PAGE, 2)
    np.testing.assert_array_equal(PAGE, before)


@pytest.mark.parametrize("factor", [0, -1, 2.0, True, "2", None, [2]])
def test_other_factors(factor: object) -> None:
    with pytest.raises(InputError, match=r"^factor is .*; a whole number from 1 is needed"):
        pool_tokens(PAGE, factor)  # type: ignore[call-overload]


NAN = PAGE.copy()
NAN[3, 1] = np.nan


@pytest.mark.parametrize(
    ("document", "index", "message"),
    [
        (PAGE[:0], None, "the document has no tokens"),
        (NAN, None, "the document[3, 1] is nan; finite is needed"),
        (MultiVector(NAN, [0, 2, 7]), 1, "the document[1, 1] is nan"),
        (PAGE * np.float32(1e30), None, "dot products are beyond float32"),
        (MultiVector(PAGE * np.float32(1e30), [0, 7]), 0, "dot products are beyond float32"),
        (PAGE[0], None, "the document has shape [2]; [tokens, dim] is needed"),
        (PAGE[None], None, "the document has shape [1, 7, 2]"),
        (PAGE.astype(np.int8), None, "the document: dtype is int8"),
        (None, None, "the document: dtype is object"),
    ],
)
def test_other_documents_are_refused(document: object, index: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        pool_tokens(document, 2)  # type: ignore[call-overload]
    assert message in str(caught.value)
    assert caught.value.index == index


# Merges of the line 0, 1, 4, 6, 20: 0-1, 4-6, those two, all.
@pytest.mark.parametrize(
    ("n_clusters", "labels"),
    [
        (1, [0, 0, 0, 0, 0]),
        (2, [0, 0, 0, 0, 1]),
        (3, [0, 0, 1, 1, 2]),
        (4, [0, 0, 1, 2, 3]),
        (5, [0, 1, 2, 3, 4]),
        (9, [0, 1, 2, 3, 4]),
    ],
)
def test_clusters_by_hand(n_clusters: int, labels: list[int]) -> None:
    points = np.array([[0.0], [1.0], [4.0], [6.0], [20.0]])
    np.testing.assert_array_equal(ward_clusters(points, n_clusters), labels)
    np.testing.assert_array_equal(ward_clusters(points + 2.0**40, n_clusters), labels)


def test_equal_merges_stay_together() -> None:
    points = np.array([[0], [1], [10], [11], [50], [51]], np.float32) - 25.5
    np.testing.assert_array_equal(ward_clusters(points, 4), [1, 1, 2, 2, 0, 0])


def test_the_heavier_cluster_costs_more() -> None:
    """To join 9 with the eight at 0 adds 8/9 of 81; with 20, farther away, half of 121."""
    points = np.array([[0.0]] * 8 + [[9.0]] + [[20.0]])
    np.testing.assert_array_equal(ward_clusters(points, 2), [0] * 8 + [1, 1])


def test_one_point() -> None:
    np.testing.assert_array_equal(ward_clusters(np.ones((1, 3)), 1), [0])
