"""Items of many vectors each, one per token, packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError
from jmm.vectors.arrays import Floats, as_array, token_rows


@dataclass(frozen=True, eq=False, repr=False)
class MultiVector:
    """Token vectors of several items, one after the other; nothing is padded.

    ``mv[i]`` is item ``i``'s float32 ``[tokens, dim]``, a view of `values`. ``mv[a:b]`` is a
    `MultiVector` of views; a slice with a step copies. Two are equal when their numbers and
    lengths are. Pickles; a slice pickles its own rows alone.

    Attributes:
        values: float32 ``[total, dim]``, C-contiguous; not copied where it is so already.
        offsets: int64 ``[n + 1]``, not writable: item ``i`` is
            ``values[offsets[i] : offsets[i + 1]]``. An item may have no tokens.

    Raises:
        InputError: ``values`` is not float32 ``[total, dim]``, or ``offsets`` does not rise from
            0 to ``total`` in whole numbers.

    Example:
        >>> mv = MultiVector(np.arange(6, dtype=np.float32).reshape(3, 2), [0, 1, 3])
        >>> mv
        MultiVector(items=2, tokens=3, dim=2)
        >>> mv[-1]
        array([[2., 3.],
               [4., 5.]], dtype=float32)
    """

    values: Floats
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        values = as_array(self.values, "values")
        if values.dtype != np.float32 or values.ndim != 2 or values.shape[1] == 0:
            raise InputError(
                f"values have dtype {values.dtype} and shape {list(values.shape)}; "
                "float32 [total, dim] is needed"
            )
        object.__setattr__(self, "values", np.ascontiguousarray(values))
        object.__setattr__(self, "offsets", _checked(self.offsets, len(values)))

    @classmethod
    def from_list(cls, arrays: Iterable[npt.ArrayLike]) -> MultiVector:
        """Packs arrays, one per item.

        Args:
            arrays: Floating-point numbers ``[tokens, dim]``, at least one array. Other widths
                are cast to float32.

        Raises:
            InputError: None given, or one has another shape or dtype than the first.

        Example:
            >>> MultiVector.from_list([np.ones((4, 128)), np.ones((780, 128))]).n_tokens
            array([  4, 780])
        """
        items = [token_rows(array, "the array", i) for i, array in enumerate(arrays)]
        if not items:
            raise InputError("no arrays; none has a dim, and one is needed")
        check_dims(items, items[0].shape[1])
        lengths = [len(item) for item in items]
        return cls(np.concatenate(items), np.cumsum([0, *lengths], dtype=np.int64))

    @classmethod
    def concatenate(cls, parts: Iterable[MultiVector]) -> MultiVector:
        """The items of all parts, in order.

        Raises:
            InputError: None given, or their dims differ.

        Example:
            >>> one = MultiVector.from_list([np.ones((4, 128))])
            >>> MultiVector.concatenate([one, one])
            MultiVector(items=2, tokens=8, dim=128)
        """
        parts = list(parts)
        if not parts:
            raise InputError("no parts; none has a dim, and one is needed")
        check_dims([part.values for part in parts], parts[0].dim, "the part")
        lengths = np.concatenate([part.n_tokens for part in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(np.concatenate([part.values for part in parts]), offsets)

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return int(self.values.shape[1])

    @property
    def n_tokens(self) -> npt.NDArray[np.int64]:
        """int64 ``[n]``: the number of vectors of each item."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> Floats: ...
    @overload
    def __getitem__(self, index: slice) -> MultiVector: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Floats | MultiVector:
        if not isinstance(index, slice):
            item = range(len(self))[index]
            return self.values[self.offsets[item] : self.offsets[item + 1]]
        items = range(len(self))[index]
        if items.step == 1:
            offsets = self.offsets[items.start : max(items.start, items.stop) + 1]
            return MultiVector(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])
        rows = [self[item] for item in items]
        return MultiVector.from_list(rows) if rows else self[:0]

    def __iter__(self) -> Iterator[Floats]:
        return (self.values[start:stop] for start, stop in pairwise(self.offsets.tolist()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MultiVector):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(
            self.values, other.values
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MultiVector(items={len(self)}, tokens={len(self.values)}, dim={self.dim})"

    def __reduce__(self) -> tuple[type[MultiVector], tuple[object, ...]]:
        return MultiVector, (self.values, self.offsets)


def check_dims(items: Iterable[Floats], dim: int, what: str = "the array") -> None:
    """Refuses items of another dim.

    Raises:
        InputError: One differs; it names its index.
    """
    for index, item in enumerate(items):
        if item.shape[1] != dim:
            raise InputError(f"{what} has dim {item.shape[1]}; the others have {dim}", index=index)


def _checked(offsets: object, total: int) -> npt.NDArray[np.int64]:
    """A copy of the offsets that cannot be written."""
    array = as_array(offsets, "offsets")
    if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) == 0:
        raise InputError(
            f"offsets have dtype {array.dtype} and shape {list(array.shape)}; "
            "whole numbers [n + 1] are needed"
        )
    if array[0] != 0 or array[-1] != total:
        raise InputError(f"offsets go from {array[0]} to {array[-1]}; 0 to {total} is needed")
    if (array[1:] < array[:-1]).any():
        item = int(np.argmax(array[1:] < array[:-1]))
        raise InputError(
            f"offsets[{item}] is {array[item]} and offsets[{item + 1}] is {array[item + 1]}; "
            "they must not fall",
            index=item,
        )
    result = array.astype(np.int64)
    result.flags.writeable = False
    return result
