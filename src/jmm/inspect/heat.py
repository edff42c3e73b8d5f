"""Which parts of a page a query matched: MaxSim, told apart by token."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jmm.errors import InputError
from jmm.images import ImageSource, to_rgb
from jmm.inspect import drawing
from jmm.inspect.placed import placed
from jmm.inspect.vocabulary import token_texts

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL import Image

    from jmm.embedder import Embedder

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class QueryToken:
    """One token of a query and its best match on the page.

    Attributes:
        id: In the model's vocabulary.
        text: As the vocabulary spells it.
        similarity: Greatest dot product with any token of the page.
        row: Token of the page that it was found at.
        cell: ``(y, x)`` in the picture's grid; None where the best match is a token around it.
    """

    id: int
    text: str
    similarity: float
    row: int
    cell: tuple[int, int] | None


@dataclass(frozen=True, eq=False, repr=False)
class HeatMap:
    """How the MaxSim score of a query and a page comes about.

    ``contributions.sum() + outside == score`` up to rounding.

    Attributes:
        picture: The page as the model read it, RGB, a square of pixels per cell.
        query: The query; "(a picture)" for one that was a picture.
        score: MaxSim.
        contributions: float64 ``[h, w]``: for each cell the sum of the similarities of the query
            tokens whose best match it is.
        outside: The same sum for the tokens around the picture: prompt and markers.
        similarities: float64 ``[h, w]``: mean over the query's tokens of the dot product with
            the cell.
        tokens: The query's tokens.
    """

    picture: Image.Image
    query: str
    score: float
    contributions: Floats
    outside: float
    similarities: Floats
    tokens: list[QueryToken]

    def __repr__(self) -> str:
        grid = "x".join(map(str, self.contributions.shape))
        return f"HeatMap(query={reprlib.repr(self.query)}, score={self.score:.4f}, grid={grid})"

    def draw(self, values: str = "contributions") -> Image.Image:
        """The page in grey under the map: red above 0, blue below.

        Args:
            values: "contributions" or "similarities".

        Raises:
            InputError: ``values`` is something else.
        """
        if values not in ("contributions", "similarities"):
            raise InputError(f"values is {values!r}; allowed are 'contributions', 'similarities'")
        cells: Floats = getattr(self, values)
        notes = [
            f"{values}: {cells.min():+.4f} to {cells.max():+.4f}",
            f'"{self.query}"',
            f"MaxSim {self.score:.4f}, outside the picture {self.outside:+.4f}",
        ]
        drawn = drawing.framed(drawing.heat(self.picture, cells))
        limit = float(np.abs(cells).max())
        if limit > 0:
            scale = drawing.scale_bar(limit, signed=bool(cells.min() < 0))
            drawn = drawing.above(drawn, scale)
        return drawing.with_notes(drawn, notes)

    def record(self) -> dict[str, Any]:
        """All numbers as plain values, for JSON."""
        return {
            "query": self.query,
            "score": self.score,
            "grid": list(self.contributions.shape),
            "contributions": self.contributions.tolist(),
            "outside": self.outside,
            "similarities": self.similarities.tolist(),
            "tokens": [vars(token) for token in self.tokens],
        }


def contributions(
    query: npt.NDArray[np.float32], page: npt.NDArray[np.float32]
) -> tuple[Floats, npt.NDArray[np.intp], Floats]:
    """Shares MaxSim out among the tokens of a page.

    Args:
        query: float32 ``[n_query, dim]``.
        page: float32 ``[n_page, dim]``.

    Returns:
        float64 ``[n_page]``: for each token the sum of the similarities of the query tokens whose
        best match it is, the first of equal ones; their total is the score of `maxsim`. Then
        ``[n_query]``, the best matches, and float64 ``[n_query, n_page]``, all similarities.

    Example:
        >>> query = np.array([[1, 0], [0, 1]], np.float32)
        >>> page = np.array([[0.5, 0.5], [0.25, 0.75], [1, 0]], np.float32)
        >>> contributions(query, page)[0]
        array([0.  , 0.75, 1.  ])
    """
    similarities = query.astype(np.float64) @ page.astype(np.float64).T
    best = similarities.argmax(axis=1)
    greatest = similarities[np.arange(len(query)), best]
    shares = np.zeros(len(page))
    np.add.at(shares, best, greatest)
    return shares, best, similarities


def heatmap(
    embedder: Embedder, page: ImageSource, query: str | ImageSource, *, task: str | None = None
) -> HeatMap:
    """Tells which parts of a page a query matched.

    Args:
        embedder: A model with a multi-vector projector.
        page: A picture, as `Embedder.encode_images` takes it.
        query: A text, as `Embedder.encode_query` takes it, or a picture, but for a path, which is
            a ``pathlib.Path``.
        task: One of ``embedder.info["tasks"]``; None for the embedder's.

    Raises:
        InputError: The model gives no token vectors or cuts pictures into tiles, the page or the
            query is no readable picture, or the query is empty.

    Example:
        >>> import numpy as np
        >>> from jmm import Embedder
        >>> page = np.zeros((84, 84, 3), np.uint8)
        >>> with Embedder() as embedder:
        ...     heatmap(embedder, page, "a red circle").similarities.shape
        (3, 3)
    """
    rgb = to_rgb(page, reference_modes=bool(embedder.info["reference_modes"]))
    kind: Literal["query", "image"] = "query" if isinstance(query, str) else "image"
    asked = embedder.trace(query, kind=kind, task=task, multi_vector=True)
    read = embedder.trace(rgb, task=task, multi_vector=True)
    places = placed(read)
    if read.vectors is None or asked.vectors is None:
        raise InputError("the model gave no token vectors")
    shares, best, similarities = contributions(asked.vectors, read.vectors)
    start, stop = places.rows.start, places.rows.stop
    n_columns = places.grid[1]
    texts = token_texts(str(embedder.info["model"]), asked.ids)
    tokens = [
        QueryToken(
            id_,
            text,
            float(similarities[index, row]),
            row,
            divmod(row - start, n_columns) if start <= row < stop else None,
        )
        for index, (id_, text, row) in enumerate(zip(asked.ids, texts, best.tolist(), strict=True))
    ]
    return HeatMap(
        drawing.resized(rgb, places.size),
        query if isinstance(query, str) else "(a picture)",
        float(shares.sum()),
        shares[places.rows].reshape(places.grid),
        float(shares[:start].sum() + shares[stop:].sum()),
        similarities[:, places.rows].mean(axis=0).reshape(places.grid),
        tokens,
    )
