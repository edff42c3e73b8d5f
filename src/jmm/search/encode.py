"""Both kinds of vectors of some pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jmm.errors import JmmError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from jmm.embedder import Embedder

    Float32 = npt.NDArray[np.float32]


class Encoded(NamedTuple):
    """Vectors of a page; the tokens' are None for a model that has none."""

    vector: Float32
    tokens: Float32 | None


def encode(embedder: Embedder, items: Sequence[Any]) -> list[Encoded | JmmError]:
    """Embeds documents, and tells which cannot be.

    Args:
        embedder: The model.
        items: Texts (str) and pictures, as `Embedder.encode_document` takes them.

    Returns:
        Per item its vectors, or why there are none.

    Raises:
        JmmError: The model itself cannot be used, whatever the items are.

    Example:
        >>> from jmm import Embedder
        >>> with Embedder() as embedder:
        ...     good, bad = encode(embedder, ["a text", ""])
        >>> good.vector.shape, str(bad)
        ((256,), 'the text is empty: it has no tokens')
    """
    try:
        return list(_together(embedder, items))
    except JmmError as error:
        error.index = None
        if not _is_usable(embedder):
            raise
        if len(items) == 1:
            return [error]
    return [result for item in items for result in encode(embedder, [item])]


def _is_usable(embedder: Embedder) -> bool:
    try:
        embedder.encode_document([])
    except JmmError:
        return False
    return True


def _together(embedder: Embedder, items: Sequence[Any]) -> list[Encoded]:
    if embedder.multi_vector_dim is None:
        return [Encoded(vector, None) for vector in embedder.encode_document(items)]
    both = embedder.encode_document(items, multi_vector="both")
    return [Encoded(*vectors) for vectors in zip(both.pooled, both.tokens, strict=True)]
