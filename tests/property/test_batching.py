"""What holds for every plan."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jmm.batching import plan

LENGTHS = st.lists(st.integers(1, 60), max_size=80)
MAX_TOKENS = st.integers(1, 120)
MAX_SEQUENCES = st.integers(1, 9)


@given(LENGTHS, MAX_TOKENS, MAX_SEQUENCES)
def test_each_sequence_once(lengths: list[int], max_tokens: int, max_sequences: int) -> None:
    batches = plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)


@given(LENGTHS, MAX_TOKENS, MAX_SEQUENCES)
def test_limits_hold(lengths: list[int], max_tokens: int, max_sequences: int) -> None:
    for batch in plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences):
        assert len(batch) <= max_sequences
        assert len(batch) == 1 or sum(lengths[index] for index in batch) <= max_tokens


@given(LENGTHS, MAX_TOKENS, MAX_SEQUENCES)
def test_longest_first_and_ties_in_order(
    lengths: list[int], max_tokens: int, max_sequences: int
) -> None:
    batches = plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences)
    order = [(-lengths[index], index) for batch in batches for index in batch]
    assert order == sorted(order)


@given(LENGTHS, MAX_TOKENS, MAX_SEQUENCES)
def test_a_batch_ends_only_where_the_next_sequence_has_no_room(
    lengths: list[int], max_tokens: int, max_sequences: int
) -> None:
    batches = plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences)
    for batch, following in itertools.pairwise(batches):
        tokens = sum(lengths[index] for index in batch) + lengths[following[0]]
        assert len(batch) == max_sequences or tokens > max_tokens


@given(LENGTHS, MAX_TOKENS, MAX_SEQUENCES)
def test_same_input_same_plan(lengths: list[int], max_tokens: int, max_sequences: int) -> None:
    first = plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences)
    assert plan(tuple(lengths), max_tokens=max_tokens, max_sequences=max_sequences) == first
