"""Items that fail alone: the others of their batch keep their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jmm.errors import JmmError

Encode = Callable[..., Sequence[Any]]


def encode_each(
    encode: Encode, items: list[Any], is_missing: Callable[[Any], bool]
) -> list[Any | JmmError]:
    """Encodes items together, and once more by itself each that failed, which tells why.

    Args:
        encode: Called with a list of items and ``on_error``; gives one result per item.
        items: What is encoded.
        is_missing: Whether a result stands for an item that failed.

    Returns:
        Per item its result, or the error.

    Raises:
        JmmError: What no single item is to blame for.

    Example:
        >>> def encode(items, on_error):
        ...     return [item if item >= 0 else None for item in items]
        >>> encode_each(encode, [3, 5], lambda result: result is None)
        [3, 5]
    """
    results = list(encode(items, on_error="nan")) if items else []
    for index, result in enumerate(results):
        if is_missing(result):
            try:
                (results[index],) = encode([items[index]], on_error="raise")
            except JmmError as error:
                error.index = None
                results[index] = error
    return results
