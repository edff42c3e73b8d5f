"""MaxSim by hand, what it accepts, and what it refuses."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from jmm import InputError, MultiVector, NonFiniteError, maxsim
from jmm.vectors import late

Rows = npt.NDArray[np.float32]

QUERIES = [
    np.array([[1, 0], [0, 1]], np.float32),
    np.array([[2, -1]], np.float32),
]
DOCUMENTS = [
    np.array([[3, 4]], np.float32),
    np.array([[-1, -2], [-3, -1]], np.float32),
    np.array([[0, 5], [1, 0], [-4, 6]], np.float32),
]
# Query 0 takes the greatest x and the greatest y; query 1 the greatest 2x - y.
RIGHT = np.array([[3 + 4, -1 - 1, 1 + 6], [2, 0, 2]], np.float32)


def unit(rng: np.random.Generator, *lengths: int, dim: int = 128) -> list[Rows]:
    rows = [rng.standard_normal((n, dim)) for n in lengths]
    return [(r / np.linalg.norm(r, axis=1, keepdims=True)).astype(np.float32) for r in rows]


def direct(queries: list[Rows], documents: list[Rows]) -> npt.NDArray[np.float64]:
    """The definition, in double."""
    wide = [[item.astype(np.float64) for item in items] for items in (queries, documents)]
    return np.array([[(q @ d.T).max(axis=1).sum() for d in wide[1]] for q in wide[0]])


def test_by_hand() -> None:
    got = maxsim(QUERIES, DOCUMENTS)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, RIGHT)


def test_every_kind_of_input() -> None:
    queries, documents = MultiVector.from_list(QUERIES), MultiVector.from_list(DOCUMENTS)
    for q in (QUERIES, tuple(QUERIES), iter(QUERIES), queries):
        np.testing.assert_array_equal(maxsim(q, documents), RIGHT)
    for d in (DOCUMENTS, [item.tolist() for item in DOCUMENTS], documents):
        np.testing.assert_array_equal(maxsim(queries, [np.asarray(i, "f8") for i in d]), RIGHT)
    np.testing.assert_array_equal(maxsim(QUERIES[0], DOCUMENTS[2]), [[7]])
    np.testing.assert_array_equal(maxsim(QUERIES[0], documents), RIGHT[:1])
    np.testing.assert_array_equal(maxsim(np.stack([QUERIES[0]] * 2), DOCUMENTS), RIGHT[[0, 0]])
    np.testing.assert_array_equal(maxsim(queries[1:], documents[::-1]), RIGHT[1:, ::-1])


def test_other_layouts() -> None:
    documents = [np.asfortranarray(item) for item in DOCUMENTS]
    every_other = [np.repeat(item, 2, axis=1)[:, ::2] for item in QUERIES]
    np.testing.assert_array_equal(maxsim(every_other, documents), RIGHT)


def test_nothing_to_score() -> None:
    nothing = MultiVector(np.empty((0, 2), np.float32), [0])
    assert maxsim([], DOCUMENTS).shape == (0, 3)
    assert maxsim(QUERIES, nothing).shape == (2, 0)
    assert maxsim(nothing, []).shape == (0, 0)


def test_scores_below_zero_stay() -> None:
    """A padded document would score 0 here."""
    scores = maxsim([[[1.0, 1.0]]], [[[-1.0, -2.0]], [[-1.0, -2.0]] * 9])
    np.testing.assert_array_equal(scores, [[-3, -3]])


LENGTHS = (1, 2, 2047, 2048, 2049, 1, 4100, 20, 20, 30)
PAGES = (1, 7, 780, 511, 512, 513, 2500, 33, 1, 2, 64, 63, 5, 5, 5, 5, 16, 17)


def test_every_block_shape() -> None:
    rng = np.random.default_rng(0)
    queries, documents = unit(rng, *LENGTHS), unit(rng, *PAGES)
    got, right = maxsim(queries, documents), direct(queries, documents)
    tokens = np.array(LENGTHS)[:, None]
    assert np.abs((got - right) / tokens).max() < 1e-6


def test_other_documents_change_no_bit() -> None:
    rng = np.random.default_rng(1)
    queries, documents = unit(rng, *LENGTHS), unit(rng, *PAGES)
    documents += documents[::-1]
    together = maxsim(queries, documents)
    for j in range(len(documents)):
        np.testing.assert_array_equal(maxsim(queries, documents[j]), together[:, j : j + 1])
    np.testing.assert_array_equal(together[:, : len(PAGES)], together[:, len(PAGES) :][:, ::-1])


def test_other_queries_move_a_score_by_rounding() -> None:
    rng = np.random.default_rng(2)
    queries, documents = unit(rng, *LENGTHS), unit(rng, *PAGES)
    together = maxsim(queries, documents)
    for i, n_tokens in enumerate(LENGTHS):
        alone = maxsim(queries[i], documents)[0]
        assert np.abs(together[i] - alone).max() < 1e-6 * n_tokens


def test_equal_calls_give_equal_bits_from_many_threads() -> None:
    rng = np.random.default_rng(3)
    queries, documents = unit(rng, *[20] * 30), unit(rng, *[100, 200] * 10)
    right = maxsim(queries, documents)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: maxsim(queries, documents), range(12)):
            np.testing.assert_array_equal(got, right)


def test_memory_is_bounded_by_the_block() -> None:
    rng = np.random.default_rng(4)
    queries = MultiVector.from_list(unit(rng, *[600] * 4, dim=8))
    documents = MultiVector.from_list(unit(rng, *[4000] * 40, dim=8))
    maxsim(queries[:1], documents[:1])
    tracemalloc.start()
    try:
        maxsim(queries, documents)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert late.N_PRODUCTS == 1024**2
    assert peak < 4 * late.N_PRODUCTS + 1024**2  # the queries, the best matches, the views


NAN, INFINITE = QUERIES[0].copy(), QUERIES[0].copy()
NAN[1, 0], INFINITE[0, 1] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("items", "index", "message"),
    [
        ([QUERIES[0], QUERIES[0][:0]], 1, "{} has no tokens"),
        (MultiVector(QUERIES[0], [0, 1, 1, 2]), 1, "{} has no tokens"),
        ([QUERIES[0], NAN], 1, "{}[1, 0] is nan; finite is needed"),
        ([INFINITE], 0, "{}[0, 1] is -inf; finite is needed"),
        (MultiVector.from_list([QUERIES[0], QUERIES[1], INFINITE]), 2, "{}[0, 1] is -inf"),
        ([np.full((1, 2), 1e300)], 0, "{}[0, 0] is inf"),
        ([QUERIES[0], np.zeros((1, 2), np.int8)], 1, "{}: dtype is int8; float32"),
        ([QUERIES[0], np.zeros(2, np.float32)], 1, "{} has shape [2]; [tokens, dim]"),
        ([[0.5, 0.5]], 0, "{} has shape [2]"),
        (np.zeros(2, np.float32), 0, "{} has shape []"),
        (np.zeros((1, 1, 1, 2), np.float32), 0, "{} has shape [1, 1, 2]"),
        (np.float32(1), None, "float32 given; a MultiVector"),
        (None, None, "NoneType given; a MultiVector, an array [tokens, dim] or several"),
        ("text", 0, "{}: dtype is <U1"),
    ],
)
def test_what_is_refused(items: object, index: int | None, message: str) -> None:
    for arguments, what in (((items, QUERIES), "the query"), ((QUERIES, items), "the document")):
        with pytest.raises(InputError) as caught:
            maxsim(*arguments)  # type: ignore[arg-type]
        assert message.format(what) in str(caught.value)
        assert caught.value.index == index


def test_dims_that_differ() -> None:
    three = np.ones((1, 3), np.float32)
    with pytest.raises(InputError, match="item 1: the query has dim 3; the others have 2"):
        maxsim([QUERIES[0], three], DOCUMENTS)
    with pytest.raises(InputError, match="item 2: the document has dim 3; the others have 2"):
        maxsim(QUERIES, [*DOCUMENTS[:2], three])
    with pytest.raises(InputError, match="item 0: the document has dim 3; the others have 2"):
        maxsim(QUERIES, three)


def test_the_sum_is_taken_in_double() -> None:
    query = np.array([[1], [2**24], [1], [1], [1]], np.float32)
    np.testing.assert_array_equal(maxsim(query, np.ones((1, 1), np.float32)), [[2**24 + 4]])


def test_great_numbers() -> None:
    great = np.full((3, 2), 1e38, np.float32)  # their sum overflows, they are finite
    np.testing.assert_array_equal(maxsim(great[:1] / 1e38, great), [[np.float32(2e38)]])
    with pytest.raises(NonFiniteError) as caught:
        maxsim([QUERIES[0], great], [DOCUMENTS[0] / 100, great])
    assert caught.value.index == 1
    assert "the score of query 1 and this document is inf" in str(caught.value)
