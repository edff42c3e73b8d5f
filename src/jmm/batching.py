"""Which sequences share a forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan(n_tokens: Sequence[int], *, max_tokens: int, max_sequences: int) -> list[list[int]]:
    """Groups sequences into batches, longest first.

    Args:
        n_tokens: Tokens of each sequence.
        max_tokens: Most tokens of a batch; a longer sequence gets a batch of its own.
        max_sequences: Most sequences of a batch.

    Returns:
        Indices into ``n_tokens``, each once.

    Example:
        >>> plan([3, 9, 4, 5], max_tokens=10, max_sequences=8)
        [[1], [3, 2], [0]]
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(n_tokens)), key=lambda i: -n_tokens[i]):
        if not batches or n_tokens[index] > room or len(batches[-1]) == max_sequences:
            batches.append([])
            room = max_tokens
        batches[-1].append(index)
        room -= n_tokens[index]
    return batches
