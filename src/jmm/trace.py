"""One item looked at token by token, before anything is pooled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.errors import InputError, NonFiniteError
from jmm.gguf_header import MERGE_SIZE

if TYPE_CHECKING:
    import numpy.typing as npt

    from jmm.kinds import Kind
    from jmm.pipeline import Pipeline
    from jmm.profiles import Patches


_TILE_AXES = 3
_PATCH_CHANNELS = 6  # three colours, two frames


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What a model made of the tokens of one item.

    Attributes:
        ids: Token ids in order; -1 for each row that a picture fills.
        hidden: float32 ``[n_tokens, dim]``: hidden states after the final norm.
        vectors: float32 ``[n_tokens, multi_vector_dim]``, unit length; None unless asked for.
        span: Rows whose mean is the item's vector, stop exclusive.
        picture: Rows of the picture, stop exclusive; None without one. Row ``start + y * w + x``
            belongs to the cell ``(y, x)`` of `grid`.
        grid: Height and width of the picture in tokens; None without one, and for a picture that
            was cut into tiles.
        patches: What the tower read: the patches and the grid's sides in patches; None without a
            picture, or for one that came as `VisionTokens`.
    """

    ids: list[int]
    hidden: npt.NDArray[np.float32]
    vectors: npt.NDArray[np.float32] | None
    span: tuple[int, int]
    picture: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    patches: Patches | None = None

    @property
    def cell(self) -> int | None:
        """Pixels per side of a token of the picture as the tower read it; None without patches."""
        if self.patches is None:
            return None
        return math.isqrt(self.patches[0].shape[1] // _PATCH_CHANNELS) * MERGE_SIZE

    def __repr__(self) -> str:
        n_tokens, dim = self.hidden.shape
        grid = "" if self.grid is None else ", grid={}x{}".format(*self.grid)
        return f"Trace(tokens={n_tokens}, dim={dim}{grid})"


def trace(pipeline: Pipeline, source: Any, kind: Kind) -> Trace:
    """Runs one item alone.

    Args:
        pipeline: With a projector if token vectors are wanted; its ``on_error`` is "raise".
        source: The item.
        kind: What it is.

    Raises:
        InputError: It cannot be read, or holds several pictures.
        NonFiniteError: The model gave NaN or infinity.
    """
    (((_, item),),) = pipeline.windows([source], kind, alone=True)
    if item is None:
        raise InputError("the item cannot be read")
    sequence: Any = item.sequence
    n_tiles = sum(np.ndim(values) == _TILE_AXES for values, *_ in sequence.pictures)
    if n_tiles > 1:
        raise InputError(f"this model cuts pictures into tiles, here {n_tiles}; one can be traced")
    if len(sequence.pictures) > 1:
        raise InputError(f"the item has {len(sequence.pictures)} pictures; one can be traced")
    n_tokens = sequence.n_tokens
    hidden = np.empty((n_tokens, pipeline.engine.n_embd), np.float32)
    projector = pipeline.projector
    vectors = None if projector is None else np.empty((n_tokens, projector.dim), np.float32)
    pooled = np.empty((1, hidden.shape[1]), np.float32)
    tokens = None if vectors is None else [vectors]
    (is_finite,) = pipeline.forward([item], pooled, tokens, hidden)
    if not is_finite:
        raise NonFiniteError(
            "the model gave NaN or infinity for this item; `jmm doctor` names the layer"
        )
    ids = sequence.token_ids()
    if not sequence.pictures:
        return Trace(ids, hidden, vectors, item.span)
    ((values, grid_h, grid_w),) = sequence.pictures
    values = np.asarray(values)
    if values.ndim == _TILE_AXES:
        return Trace(ids, hidden, vectors, item.span, sequence.picture_span)
    return Trace(
        ids,
        hidden,
        vectors,
        item.span,
        sequence.picture_span,
        (grid_h // MERGE_SIZE, grid_w // MERGE_SIZE),
        (values, grid_h, grid_w) if len(values) == grid_h * grid_w else None,
    )
