"""Ranks pictures by a query, and draws what was found."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jmm.inspect.drawing import SheetCell, SheetRow, contact_sheet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from PIL import Image

    from jmm.embedder import Embedder
    from jmm.gallery.pictures import Entry


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """A query, and the pictures in order.

    Attributes:
        query: The text.
        right: Place in the gallery of the picture that it is true of.
        order: int64 ``[n]``: places of all pictures, best first; equal scores in the gallery's
            order.
        scores: float32 ``[n]``: cosine of each picture, by place.
    """

    query: str
    right: int
    order: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    def __repr__(self) -> str:
        return f"Answer(query={reprlib.repr(self.query)}, rank={self.rank})"

    @property
    def rank(self) -> int:
        """Where the right picture stands, from 1 on."""
        return int(np.flatnonzero(self.order == self.right)[0]) + 1


def answer(
    embedder: Embedder, entries: Sequence[Entry], queries: Mapping[str, int]
) -> list[Answer]:
    """Embeds pictures and queries, and ranks the pictures for each query.

    Args:
        embedder: Any model that reads pictures.
        entries: The gallery.
        queries: Texts, each with the place of the picture that it is true of.

    Example:
        >>> from jmm import Embedder
        >>> from jmm.gallery import QUERIES, pictures
        >>> with Embedder() as embedder:
        ...     len(answer(embedder, pictures(), QUERIES)[0].order)
        36
    """
    pages = embedder.encode_images([entry.picture for entry in entries])
    vectors = embedder.encode_query(list(queries))
    answers = []
    for (query, right), vector in zip(queries.items(), vectors, strict=True):
        scores = pages @ vector
        order = np.argsort(-scores, kind="stable")
        answers.append(Answer(query, right, order, scores))
    return answers


def sheet(entries: Sequence[Entry], answers: Sequence[Answer], top: int = 5) -> Image.Image:
    """A contact sheet: per query its best pictures with their scores; the right one framed."""
    rows = []
    for found in answers:
        cells = [
            SheetCell(
                entries[place].picture, f"{found.scores[place]:+.4f}", marked=place == found.right
            )
            for place in found.order[:top].tolist()
        ]
        title = f'"{found.query}": right picture at rank {found.rank}'
        rows.append(SheetRow(title, cells))
    return contact_sheet(rows)
