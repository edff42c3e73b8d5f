"""MaxSim and MultiVector for items of every length."""

from __future__ import annotations

import pickle

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from jmm import MultiVector, maxsim

Rows = npt.NDArray[np.float32]
SEEDS = st.integers(0, 2**32 - 1)
LENGTHS = st.lists(st.integers(1, 70), min_size=1, max_size=20)
DIMS = st.integers(1, 40)


def packed(seed: int, lengths: list[int], dim: int) -> MultiVector:
    """Small whole numbers: their dot products are exact in float32."""
    values = np.random.default_rng(seed).integers(-8, 9, (sum(lengths), dim)).astype(np.float32)
    return MultiVector(values, np.cumsum([0, *lengths]))


@given(SEEDS, LENGTHS, LENGTHS, DIMS)
def test_the_definition(seed: int, asked: list[int], pages: list[int], dim: int) -> None:
    queries, documents = packed(seed, asked, dim), packed(seed + 1, pages, dim)
    right = [[(q @ d.T).max(axis=1).sum() for d in documents] for q in queries]
    np.testing.assert_array_equal(maxsim(queries, documents), np.array(right, np.float32))


@given(SEEDS, LENGTHS, DIMS, st.data())
def test_the_order_of_tokens_does_not_matter(
    seed: int, lengths: list[int], dim: int, data: st.DataObject
) -> None:
    items = packed(seed, lengths, dim)
    shuffled = MultiVector.from_list(
        [rows[data.draw(st.permutations(range(len(rows))))] for rows in items]
    )
    np.testing.assert_array_equal(maxsim(items, items), maxsim(shuffled, shuffled))


@given(SEEDS, st.lists(st.integers(0, 5), min_size=1, max_size=9), DIMS, st.data())
def test_slices_are_those_of_a_list(
    seed: int, lengths: list[int], dim: int, data: st.DataObject
) -> None:
    items = packed(seed, lengths, dim)
    where = data.draw(st.slices(len(items)))
    got = items[where]
    assert [rows.tolist() for rows in got] == [rows.tolist() for rows in list(items)[where]]
    assert pickle.loads(pickle.dumps(got)) == got
    assert MultiVector.concatenate([got, items]) == MultiVector.from_list([*got, *items])
