"""Where two models, or a model and the reference, differ on a picture, before pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.errors import InputError
from jmm.images import ImageSource, to_rgb
from jmm.inspect import drawing
from jmm.inspect.placed import placed

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL import Image

    from jmm.embedder import Embedder
    from jmm.trace import Trace

    Floats = npt.NDArray[np.float64]

# The low resolution has this share of the high one's area: half of each side.
LOW_SHARE = 4
# The full red is never less: files of one model in F16 and F32 are about so far apart, which is
# rounding, and would look like a fault.
LEAST_LIMIT = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class PatchDistances:
    """How far two models are apart on one picture at one resolution.

    A distance is 1 less the cosine of two hidden states of the same token.

    Attributes:
        picture: As the models read it, RGB, a square of pixels per cell.
        cells: float64 ``[h, w]``: distance of each token of the picture.
        around: float64 ``[n]``: of the tokens before and after the picture.
        pooled: Of the two pooled vectors.
    """

    picture: Image.Image
    cells: Floats
    around: Floats
    pooled: float

    def __repr__(self) -> str:
        grid = "x".join(map(str, self.cells.shape))
        return f"PatchDistances(grid={grid}, max={self.cells.max():.3g}, pooled={self.pooled:.3g})"

    def record(self) -> dict[str, Any]:
        """All numbers as plain values, for JSON."""
        worst = np.unravel_index(int(self.cells.argmax()), self.cells.shape)
        return {
            "grid": list(self.cells.shape),
            "mean": float(self.cells.mean()),
            "median": float(np.median(self.cells)),
            "p95": float(np.quantile(self.cells, 0.95)),
            "max": float(self.cells.max()),
            "max_at": [int(place) for place in worst],
            "pooled": self.pooled,
            "around": self.around.tolist(),
            "distances": self.cells.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """One picture at a low and a high resolution.

    Attributes:
        first: Name of one model.
        second: Name of the other, or of the reference.
        low: At the low resolution.
        high: At the high resolution.
    """

    first: str
    second: str
    low: PatchDistances
    high: PatchDistances

    def draw(self) -> Image.Image:
        """Both maps side by side, the redder the farther, by one scale; the low one enlarged.

        The full red is the greatest distance, or `LEAST_LIMIT` if that is more.
        """
        greatest = max(self.low.cells.max(), self.high.cells.max())
        limit = max(float(greatest), LEAST_LIMIT)
        maps = [drawing.heat(part.picture, part.cells, limit) for part in (self.low, self.high)]
        height = max(part.height for part in maps)
        maps = [part.resize((part.width * height // part.height, height), 0) for part in maps]
        titled = [
            drawing.with_notes(
                drawing.framed(drawn),
                [
                    "{} x {} tokens, rows x columns".format(*part.cells.shape),
                    f"mean {part.cells.mean():.3g}, max {part.cells.max():.3g}, "
                    f"pooled {part.pooled:.3g}",
                ],
            )
            for drawn, part in zip(maps, (self.low, self.high), strict=True)
        ]
        red = f"full red: {limit:.3g} = 1 - cosine"
        if greatest < LEAST_LIMIT:
            red += "; all is below it, which is rounding"
        maps_and_scale = drawing.above(
            drawing.beside(titled), drawing.scale_bar(limit, signed=False)
        )
        notes = [red, f"A: {self.first}", f"B: {self.second}"]
        return drawing.with_notes(maps_and_scale, notes)

    def record(self) -> dict[str, Any]:
        """All numbers as plain values, for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "low": self.low.record(),
            "high": self.high.record(),
        }


def distances(first: npt.NDArray[np.floating], second: npt.NDArray[np.floating]) -> Floats:
    """1 less the cosine of the rows of two arrays, exactly 0 for equal ones.

    It is half the squared distance of the unit vectors, which keeps the digits that ``1 - cos``
    loses near 0.

    Args:
        first: ``[n, dim]``.
        second: The same shape.

    Returns:
        float64 ``[n]``; a row of zeros has distance 1/2 to any other.

    Example:
        >>> distances(np.eye(2), np.array([[0.0, 3.0], [0.0, 5.0]]))
        array([1., 0.])
    """
    squares: Floats = np.square(_unit(first) - _unit(second)).sum(axis=1)
    return 0.5 * squares


def _unit(rows: npt.NDArray[np.floating]) -> Floats:
    exact = rows.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(norms > 0, norms, 1)


def patch_distances(picture: Image.Image, first: Trace, second: Trace) -> PatchDistances:
    """Compares two traces of one picture.

    Args:
        picture: RGB, of any size.
        first: Of one model.
        second: Of the other.

    Raises:
        InputError: They are not of one picture, or have not the same tokens or width.
    """
    places, _ = placed(first), placed(second)
    if first.grid != second.grid or first.ids != second.ids:
        raise InputError(
            f"the models read the picture differently: {len(first.ids)} tokens with a grid of "
            f"{first.grid} and {len(second.ids)} with {second.grid}; give both one profile and "
            "the same pixel limits"
        )
    if first.hidden.shape != second.hidden.shape:
        raise InputError(
            f"hidden states have {first.hidden.shape[1]} and {second.hidden.shape[1]} numbers; "
            "two files of one model are needed"
        )
    rows = distances(first.hidden, second.hidden)
    pooled = distances(_mean(first), _mean(second))
    return PatchDistances(
        drawing.resized(picture, places.size),
        rows[places.rows].reshape(places.grid),
        np.concatenate([rows[: places.rows.start], rows[places.rows.stop :]]),
        float(pooled[0]),
    )


def _mean(traced: Trace) -> Floats:
    start, stop = traced.span
    mean: Floats = traced.hidden[start:stop].mean(axis=0, dtype=np.float64)
    return mean[None]


def resolutions(
    embedder: Embedder,
    image: ImageSource,
    *,
    low_pixels: int | None = None,
    high_pixels: int | None = None,
    task: str | None = None,
) -> tuple[Image.Image, list[Trace]]:
    """Runs one picture at a low and at a high resolution.

    Args:
        embedder: The model.
        image: A picture, as `Embedder.encode_images` takes it.
        low_pixels: Greatest area at the low resolution; None for a quarter of the high one's.
        high_pixels: Greatest area at the high resolution; None for the embedder's.
        task: One of ``embedder.info["tasks"]``; None for the embedder's.

    Returns:
        The picture in RGB, and its two traces.

    Raises:
        InputError: It is no readable picture, or too small to have two resolutions; or the model
            cuts pictures into tiles.

    Example:
        >>> from jmm import Embedder
        >>> with Embedder() as embedder:
        ...     _, traces = resolutions(embedder, np.zeros((84, 84), np.uint8))
        >>> [trace.grid for trace in traces]
        [(1, 1), (3, 3)]
    """
    picture = to_rgb(image, reference_modes=bool(embedder.info["reference_modes"]))
    high = embedder.trace(picture, task=task, max_pixels=high_pixels)
    places = placed(high)
    if low_pixels is None:
        low_pixels = math.prod(places.size) // LOW_SHARE
    low = embedder.trace(picture, task=task, max_pixels=low_pixels)
    if low.grid == high.grid:
        raise InputError(
            "the picture is too small to compare at two resolutions: it has {} x {} tokens at {} "
            "pixels too; lower low_pixels, or take a larger picture".format(
                *places.grid, low_pixels
            )
        )
    return picture, [low, high]


def compare(
    names: tuple[str, str],
    picture: Image.Image,
    first: Sequence[Trace],
    second: Sequence[Trace] | Callable[[Trace], Trace],
) -> Comparison:
    """Compares what two models made of a picture at two resolutions.

    Args:
        names: Of the two, for the drawing.
        picture: As `resolutions` gives it.
        first: As `resolutions` gives it: low, high.
        second: Of the other model, or what makes its trace of ours, as `Reference.trace` does.

    Raises:
        InputError: See `patch_distances`.

    Example:
        >>> from jmm import Embedder
        >>> with Embedder() as embedder:
        ...     picture, traces = resolutions(embedder, np.zeros((84, 84), np.uint8))
        >>> compare(("a", "a"), picture, traces, traces).high.cells.max()
        np.float64(0.0)
    """
    others = [second(trace) for trace in first] if callable(second) else second
    low, high = (
        patch_distances(picture, one, other) for one, other in zip(first, others, strict=True)
    )
    return Comparison(*names, low, high)
