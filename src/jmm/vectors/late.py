"""Late interaction: how well the tokens of a query match those of a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError, NonFiniteError
from jmm.vectors.arrays import Floats, check_finite, token_rows
from jmm.vectors.multi import MultiVector, check_dims

TokenVectors: TypeAlias = "MultiVector | Iterable[npt.ArrayLike] | npt.NDArray[np.floating]"

# Dot products at a time: 4 MiB, so that they stay in the CPU's caches.
N_PRODUCTS = 2**20
# Query tokens at a time; of a document's, as many as the products leave room for.
N_QUERY_TOKENS = 2048
# Documents that stay in the caches while the queries pass.
N_DOCUMENTS = 16


def maxsim(queries: TokenVectors, documents: TokenVectors) -> Floats:
    """Late-interaction scores of all queries with all documents.

    The score is the sum over the query's tokens of the greatest dot product with any of the
    document's tokens (MaxSim; Khattab and Zaharia, ColBERT, 2020).

    Args:
        queries: A `MultiVector`, arrays ``[tokens, dim]``, or one such array, which is one item.
            float32; other floats are cast.
        documents: The same.

    Returns:
        float32 ``[n_queries, n_documents]``, C-contiguous.

        A score does not depend on the other documents: equal bits. Other queries move it by
        rounding, less than 1e-6 per query token for unit vectors, since BLAS rounds by the shape
        of the product. Equal calls give equal bits as long as BLAS has equal threads.

    Raises:
        InputError: An item has no tokens, another dim than the first query, or NaN or infinity;
            the message says whether it is a query or a document, ``index`` which one.
        NonFiniteError: A score is beyond float32; ``index`` is the document's.

    It works in blocks of 4 MiB, without the GIL in BLAS, whose threads are those of numpy
    (``OPENBLAS_NUM_THREADS``). Arrays in C order are not copied, besides the queries. Any number
    of threads may call it.

    Example:
        >>> query = np.array([[1, 0], [0, 1]], np.float32)
        >>> pages = np.array([[[0.5, 0.5], [0, 0]], [[1, 0], [0.5, 0.25]]], np.float32)
        >>> maxsim(query, pages)
        array([[1.  , 1.25]], dtype=float32)
    """
    asked, pages = _items(queries, "the query"), _items(documents, "the document")
    scores = np.empty((len(asked), len(pages)), np.float32)
    if scores.size == 0:
        return scores
    dim = asked[0].shape[1]
    check_dims(asked, dim, "the query")
    check_dims(pages, dim, "the document")
    groups = list(_groups(asked))
    widest = max(len(rows) for rows, _, _ in groups)
    n_products = min(N_QUERY_TOKENS, widest) * max(map(len, pages))
    block = np.empty(min(N_PRODUCTS, n_products), np.float32)
    best = np.empty((N_DOCUMENTS, widest), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(pages), N_DOCUMENTS):
            some = pages[first : first + N_DOCUMENTS]
            for rows, starts, where in groups:
                maxima = best[: len(some), : len(rows)]
                for page, maximum in zip(some, maxima, strict=True):
                    _best_match(rows, page, block, maximum)
                sums = np.add.reduceat(maxima, starts, axis=1, dtype=np.float64)
                scores[where, first : first + N_DOCUMENTS] = sums.T
    if not np.isfinite(scores).all():
        query, page = np.argwhere(~np.isfinite(scores))[0]
        raise NonFiniteError(
            f"the score of query {query} and this document is {scores[query, page]}; "
            "their dot products are beyond float32",
            index=int(page),
        )
    return scores


def _items(vectors: TokenVectors, what: str) -> list[Floats]:
    """The items' rows, each of at least one token and finite."""
    if isinstance(vectors, MultiVector):
        items = list(vectors)
    else:
        if getattr(vectors, "ndim", None) == 2:
            vectors = [vectors]  # type: ignore[list-item]
        elif not isinstance(vectors, Iterable) or getattr(vectors, "ndim", 1) == 0:
            raise InputError(
                f"{type(vectors).__name__} given; a MultiVector, an array [tokens, dim] or several"
            )
        items = [token_rows(item, what, index) for index, item in enumerate(vectors)]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [np.add.reduce(item, axis=None) for item in items]  # NaN and infinity stay in sums
    for suspect in np.flatnonzero(~np.isfinite(sums)).tolist():
        check_finite(items[suspect], what, suspect)
    for index, item in enumerate(items):
        if len(item) == 0:
            raise InputError(f"{what} has no tokens", index=index)
    return items


def _groups(queries: list[Floats]) -> Iterator[tuple[Floats, npt.NDArray[np.int64], slice]]:
    """Queries side by side, as many as a block takes, at least one.

    Yields:
        Their tokens; where each query starts among them; which queries they are.
    """
    first = 0
    while first < len(queries):
        stop, total = first + 1, len(queries[first])
        while stop < len(queries) and total + len(queries[stop]) <= N_QUERY_TOKENS:
            total += len(queries[stop])
            stop += 1
        some = queries[first:stop]
        starts = np.cumsum([0, *map(len, some[:-1])], dtype=np.int64)
        yield np.concatenate(some), starts, slice(first, stop)
        first = stop


def _best_match(queries: Floats, document: Floats, block: Floats, out: Floats) -> None:
    """Writes each query token's greatest dot product with the document's tokens."""
    for start in range(0, len(queries), N_QUERY_TOKENS):
        rows = queries[start : start + N_QUERY_TOKENS]
        maximum = out[start : start + N_QUERY_TOKENS]
        step = N_PRODUCTS // len(rows)
        for first in range(0, len(document), step):
            tokens = document[first : first + step]
            # The longer side is the contiguous one: a row's greatest is found the faster.
            axis = int(len(tokens) >= len(rows))
            left, right = (rows, tokens) if axis else (tokens, rows)
            products = block[: len(left) * len(right)].reshape(len(left), len(right))
            np.matmul(left, right.T, out=products)
            if first == 0:
                products.max(axis=axis, out=maximum)
            else:
                np.maximum(maximum, products.max(axis=axis), out=maximum)
