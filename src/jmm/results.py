"""Where results gather: one row per item, or one row per token."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from jmm.errors import OutOfMemoryError
from jmm.vectors import MultiVector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Float32 = npt.NDArray[np.float32]


class BothVectors(NamedTuple):
    """Both kinds of vectors, of one forward pass.

    Attributes:
        pooled: float32 ``[n, dim]``, or ``[dim]`` of one item.
        tokens: A `MultiVector`, or float32 ``[n_tokens, multi_vector_dim]`` of one item.
    """

    pooled: Any
    tokens: Any

    def __repr__(self) -> str:
        tokens = self.tokens if isinstance(self.tokens, MultiVector) else list(self.tokens.shape)
        return f"BothVectors(pooled={list(self.pooled.shape)}, tokens={tokens})"


@contextmanager
def _room(n: int, dim: int) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise OutOfMemoryError(f"no memory for a result of {n:,} rows of {dim} numbers") from None


class Rows(Protocol):
    """What a batch writes into."""

    def reserve(self, indices: Sequence[int], n_tokens: Sequence[int]) -> None:
        """Makes room for items about to run, in increasing order of their indices."""

    def tokens(self, indices: Sequence[int]) -> list[Float32] | None:
        """Per item the array that its token rows go to; None if none are wanted."""

    def keep(self, index: int, pooled: Float32) -> None:
        """Takes an item's result; the rows of one that is never kept do not count."""


class PooledRows:
    """One row per item.

    Attributes:
        values: float32 ``[n, dim]``; NaN where an item has no result.
    """

    def __init__(self, n: int, dim: int) -> None:
        with _room(n, dim):
            self.values = np.full((n, dim), np.nan, np.float32)

    def reserve(self, indices: Sequence[int], n_tokens: Sequence[int]) -> None:
        """Does nothing."""

    def tokens(self, indices: Sequence[int]) -> list[Float32] | None:  # noqa: ARG002
        """None: no token rows are wanted."""
        return None

    def keep(self, index: int, pooled: Float32) -> None:
        """Copies the row."""
        self.values[index] = pooled


class TokenRows:
    """One row per token, in one array that grows with each window of items.

    Args:
        n: Items.
        dim: Components of a token's vector.
    """

    def __init__(self, n: int, dim: int) -> None:
        self._values: Float32 = np.empty((0, dim), np.float32)
        self._starts = np.zeros(n, np.int64)
        self._n_tokens = np.zeros(n, np.int64)
        self._kept = np.zeros(n, bool)

    def reserve(self, indices: Sequence[int], n_tokens: Sequence[int]) -> None:
        """Grows the array."""
        start = len(self._values)
        ends = start + np.cumsum(n_tokens)
        self._starts[indices] = ends - n_tokens
        self._n_tokens[indices] = n_tokens
        n, dim = ends[-1] if len(ends) else start, self._values.shape[1]
        with _room(n, dim):  # in place: no view of the array outlives its batch
            self._values.resize((n, dim), refcheck=False)

    def tokens(self, indices: Sequence[int]) -> list[Float32] | None:
        """Views into the array."""
        return [self._values[start : start + n] for start, n in self._spans(indices)]

    def keep(self, index: int, pooled: Float32) -> None:  # noqa: ARG002
        """Counts the rows that are there already."""
        self._kept[index] = True

    def result(self) -> MultiVector:
        """All items; one without a result has no tokens."""
        lengths = np.where(self._kept, self._n_tokens, 0)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        if offsets[-1] == len(self._values):
            return MultiVector(self._values, offsets)
        spans = self._spans(np.flatnonzero(self._kept))
        parts = [self._values[start : start + n] for start, n in spans]
        with _room(int(offsets[-1]), self._values.shape[1]):
            return MultiVector(np.concatenate([self._values[:0], *parts]), offsets)

    def _spans(self, indices: Sequence[int] | npt.NDArray[np.intp]) -> list[tuple[int, int]]:
        return list(
            zip(self._starts[indices].tolist(), self._n_tokens[indices].tolist(), strict=True)
        )


class BothRows:
    """Both, side by side."""

    def __init__(self, pooled: PooledRows, token_rows: TokenRows) -> None:
        self.pooled = pooled
        self.token_rows = token_rows

    def reserve(self, indices: Sequence[int], n_tokens: Sequence[int]) -> None:
        """Makes room for the tokens."""
        self.token_rows.reserve(indices, n_tokens)

    def tokens(self, indices: Sequence[int]) -> list[Float32] | None:
        """As of `TokenRows`."""
        return self.token_rows.tokens(indices)

    def keep(self, index: int, pooled: Float32) -> None:
        """Keeps both."""
        self.pooled.keep(index, pooled)
        self.token_rows.keep(index, pooled)
