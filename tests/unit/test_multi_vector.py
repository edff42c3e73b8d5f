"""Packing, views, slices, and what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from jmm import InputError, MultiVector

VALUES = np.arange(12, dtype=np.float32).reshape(6, 2)
OFFSETS = [0, 1, 1, 4, 6]


@pytest.fixture
def mv() -> MultiVector:
    return MultiVector(VALUES, OFFSETS)


def test_lengths(mv: MultiVector) -> None:
    assert len(mv) == 4
    assert mv.dim == 2
    np.testing.assert_array_equal(mv.n_tokens, [1, 0, 3, 2])
    assert mv.n_tokens.dtype == mv.offsets.dtype == np.int64
    assert repr(mv) == "MultiVector(items=4, tokens=6, dim=2)"


def test_the_values_are_not_copied(mv: MultiVector) -> None:
    assert np.shares_memory(mv.values, VALUES)
    assert all(np.shares_memory(mv[i], VALUES) for i in (0, 2, 3))
    assert np.shares_memory(mv[1:].values, VALUES)
    assert np.shares_memory(mv[1:-1][1:][0], VALUES)


@pytest.mark.parametrize(
    ("index", "rows"), [(0, [0]), (1, []), (2, [1, 2, 3]), (-1, [4, 5]), (np.int64(-4), [0])]
)
def test_items(mv: MultiVector, index: int, rows: list[int]) -> None:
    np.testing.assert_array_equal(mv[index], VALUES[rows])
    assert mv[index].shape == (len(rows), 2)
    assert mv[index].flags.c_contiguous


@pytest.mark.parametrize("index", [4, -5])
def test_outside(mv: MultiVector, index: int) -> None:
    with pytest.raises(IndexError):
        mv[index]


@pytest.mark.parametrize("index", ["0", 1.0, None, (0, 1)])
def test_no_index(mv: MultiVector, index: object) -> None:
    with pytest.raises(TypeError):
        mv[index]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "where",
    [
        slice(None), slice(1, 3), slice(-2, None), slice(2, 2), slice(3, 1), slice(9, None),
        slice(None, None, 2), slice(None, None, -1), slice(2, None, -1), slice(1, 1, 2),
    ],
)  # fmt: skip
def test_slices(mv: MultiVector, where: slice) -> None:
    got, expected = mv[where], list(mv)[where]
    assert isinstance(got, MultiVector)
    assert got.dim == 2
    assert len(got) == len(expected)
    for rows, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(rows, right)


def test_iteration_both_ways(mv: MultiVector) -> None:
    assert [rows.tolist() for rows in mv] == [mv[i].tolist() for i in range(4)]
    assert [rows.tolist() for rows in reversed(mv)] == [mv[i].tolist() for i in (3, 2, 1, 0)]


def test_a_list_packs_to_the_same(mv: MultiVector) -> None:
    assert MultiVector.from_list(list(mv)) == mv
    assert MultiVector.from_list(iter(mv)) == mv


def test_a_list_of_other_floats_is_cast() -> None:
    got = MultiVector.from_list([np.ones((1, 2), np.float16), np.full((2, 2), 0.1)[:, ::-1]])
    np.testing.assert_array_equal(got.values, np.array([[1, 1], [0.1, 0.1], [0.1, 0.1]], "f4"))
    assert MultiVector.from_list(np.zeros((3, 4, 2))).n_tokens.tolist() == [4, 4, 4]


def test_concatenated(mv: MultiVector) -> None:
    got = MultiVector.concatenate([mv[2:], mv[:0], mv[:3]])
    assert got == MultiVector.from_list([mv[2], mv[3], mv[0], mv[1], mv[2]])
    assert MultiVector.concatenate([mv[1:2]]) == mv[1:2]


def test_equality(mv: MultiVector) -> None:
    assert mv == MultiVector(VALUES.copy(), np.array(OFFSETS, np.uint8))
    assert mv != MultiVector(VALUES, [0, 1, 2, 4, 6])
    assert mv != MultiVector(VALUES + 1, OFFSETS)
    assert mv != VALUES.tolist()
    with pytest.raises(TypeError, match="unhashable"):
        hash(mv)


def test_copies(mv: MultiVector) -> None:
    for other in (pickle.loads(pickle.dumps(mv)), copy.deepcopy(mv)):
        assert other == mv
        assert not np.shares_memory(other.values, VALUES)
        assert not other.offsets.flags.writeable


def test_a_pickled_slice_is_small() -> None:
    mv = MultiVector(np.zeros((100_000, 2), np.float32), [0, 10, 100_000])
    assert len(pickle.dumps(mv[:1])) < 1000


def test_it_cannot_be_changed(mv: MultiVector) -> None:
    with pytest.raises(AttributeError):
        mv.values = VALUES  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        mv.offsets[0] = 1


def test_the_callers_offsets_are_not_kept() -> None:
    offsets = np.array(OFFSETS)
    mv = MultiVector(VALUES, offsets)
    offsets[1] = 5
    assert mv.n_tokens[0] == 1


def test_other_layouts_are_copied() -> None:
    mv = MultiVector(np.asfortranarray(VALUES), OFFSETS)
    assert mv.values.flags.c_contiguous
    assert mv == MultiVector(VALUES, OFFSETS)


def test_no_items() -> None:
    mv = MultiVector(np.empty((0, 3), np.float32), [0])
    assert (len(mv), mv.dim, list(mv)) == (0, 3, [])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VALUES.astype(np.float64), "dtype float64 and shape [6, 2]; float32 [total, dim]"),
        (VALUES.astype(np.int8), "dtype int8"),
        (VALUES.ravel(), "shape [12]"),
        (VALUES.reshape(6, 2, 1), "shape [6, 2, 1]"),
        (np.empty((6, 0), np.float32), "shape [6, 0]"),
        ([[1.0], [1.0, 2.0]], "values cannot be read as an array"),
    ],
)
def test_other_values_are_refused(values: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        MultiVector(values, OFFSETS)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 1, 5], "offsets go from 0 to 5; 0 to 6 is needed"),
        ([1, 6], "offsets go from 1 to 6"),
        ([-1, 6], "offsets go from -1"),
        ([0, 9, 6], "item 1: offsets[1] is 9 and offsets[2] is 6; they must not fall"),
        ([0, 4, 3, 6], "offsets[1] is 4 and offsets[2] is 3"),
        (np.array([0, 4, 3, 6], np.uint64), "offsets[1] is 4 and offsets[2] is 3"),
        ([0.0, 6.0], "dtype float64"),
        ([[0, 6]], "shape [1, 2]"),
        ([], "shape [0]; whole numbers [n + 1]"),
        (np.array([], np.int64), "shape [0]"),
        (6, "shape []"),
        ([False, True], "dtype bool"),
    ],
)
def test_other_offsets_are_refused(offsets: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        MultiVector(VALUES, offsets)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "index", "message"),
    [
        ([], None, "no arrays"),
        ([VALUES, VALUES[:, :1]], 1, "the array has dim 1; the others have 2"),
        ([VALUES, VALUES[0]], 1, "the array has shape [2]; [tokens, dim] is needed"),
        ([VALUES, VALUES, VALUES.astype(np.int8)], 2, "the array: dtype is int8; float32"),
        ([VALUES, "text"], 1, "the array: dtype is <U4"),
        ([VALUES, [[1.0], [1.0, 2.0]]], 1, "cannot be read as an array"),
        ([np.empty((3, 0))], 0, "shape [3, 0]"),
    ],
)
def test_other_lists_are_refused(arrays: list[object], index: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        MultiVector.from_list(arrays)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert caught.value.index == index


def test_parts_that_do_not_fit() -> None:
    one, other = MultiVector(VALUES, [0, 6]), MultiVector(VALUES.reshape(4, 3), [0, 4])
    with pytest.raises(InputError, match="item 1: the part has dim 3; the others have 2"):
        MultiVector.concatenate([one, other])
    with pytest.raises(InputError, match="no parts"):
        MultiVector.concatenate([])
