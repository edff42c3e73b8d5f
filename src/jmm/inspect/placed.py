"""Where the tokens of a picture lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jmm.errors import InputError

if TYPE_CHECKING:
    from jmm.trace import Trace


# Of most of Qwen's towers: for `VisionTokens`, whose patches are not kept.
_USUAL_CELL = 28


class Placed(NamedTuple):
    """The cells of a picture, each of one token.

    Attributes:
        grid: Height and width in cells.
        rows: Rows of the trace, row by row of the grid.
        cell: Pixels per side of a cell.
    """

    grid: tuple[int, int]
    rows: slice
    cell: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.grid[1] * self.cell, self.grid[0] * self.cell


def placed(trace: Trace) -> Placed:
    """The cells of a traced picture.

    Raises:
        InputError: It has no picture, or one that was cut into tiles.

    Example:
        >>> import numpy as np
        >>> from jmm import Embedder
        >>> with Embedder() as embedder:
        ...     placed(embedder.trace(np.zeros((84, 84), np.uint8))).size
        (84, 84)
    """
    if trace.picture is None:
        raise InputError("there is no picture to look at")
    if trace.grid is None:
        raise InputError(
            "this model cuts pictures into tiles, so that its tokens lie in no grid over the "
            "picture; heat maps and comparisons take Qwen-VL models, which read it whole"
        )
    return Placed(trace.grid, slice(*trace.picture), trace.cell or _USUAL_CELL)
