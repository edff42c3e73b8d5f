"""Plans by hand."""

from __future__ import annotations

import pytest

from jmm.batching import plan


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "max_sequences", "batches"),
    [
        ([], 10, 8, []),
        ([4], 10, 8, [[0]]),
        ([3, 9, 4, 5], 10, 8, [[1], [3, 2], [0]]),
        ([5, 5], 10, 8, [[0, 1]]),
        ([5, 6], 10, 8, [[1], [0]]),
        ([11, 1, 25], 10, 8, [[2], [0], [1]]),
        ([1, 1, 1, 1, 1], 10, 2, [[0, 1], [2, 3], [4]]),
        ([2, 7, 2], 10, 1, [[1], [0], [2]]),
    ],
)
def test_plan(
    lengths: list[int], max_tokens: int, max_sequences: int, batches: list[list[int]]
) -> None:
    assert plan(lengths, max_tokens=max_tokens, max_sequences=max_sequences) == batches
