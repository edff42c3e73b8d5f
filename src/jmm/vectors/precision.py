"""Vectors in fewer bits: int8, uint8 and one bit per component."""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError
from jmm.vectors.arrays import Floats, floats

Precision: TypeAlias = Literal["float32", "int8", "uint8", "binary", "ubinary"]

# Below this sentence-transformers warns as well.
N_STABLE = 100


def check_precision(precision: object) -> None:
    """Raises InputError unless ``precision`` is one that `quantize` takes."""
    if not isinstance(precision, str) or precision not in get_args(Precision):
        allowed = ", ".join(map(repr, get_args(Precision)))
        raise InputError(f"precision is {precision!r}; allowed are {allowed}")


def calibrate(vectors: npt.ArrayLike) -> Floats:
    """The least and the greatest value of each component, for `quantize`.

    Args:
        vectors: Floating-point numbers ``[n, dim]``, at least two rows, all finite. A few hundred
            that stand for all to come; for token vectors, ``mv.values``.

    Returns:
        float32 ``[2, dim]``: minima, maxima.

    Raises:
        InputError: Another shape or dtype, fewer rows, or NaN or infinity in row ``index``.

    Example:
        >>> calibrate([[0.0, 3.0], [2.0, -1.0], [1.0, 1.0]])
        array([[ 0., -1.],
               [ 2.,  3.]], dtype=float32)
    """
    rows = _finite(vectors)
    if rows.ndim != 2 or len(rows) < 2:
        raise InputError(
            f"vectors have shape {list(rows.shape)}; ranges need [n, dim] with at least 2 rows"
        )
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


def quantize(
    vectors: npt.ArrayLike, precision: Precision, ranges: npt.ArrayLike | None = None
) -> npt.NDArray[Any]:
    """Vectors in fewer bits, as sentence-transformers' ``quantize_embeddings`` makes them.

    Args:
        vectors: Floating-point numbers ``[n, dim]`` or ``[dim]``.
        precision: ``"int8"`` and ``"uint8"`` cut each component's range into 255 equal steps and
            take the step that a value has reached; values outside take the nearest end.
            In float32, as there, rounding may leave the maximum itself a step short of 255.
            ``"binary"`` and ``"ubinary"`` keep whether a component is above 0, eight to a byte,
            the first in the highest bit, and zero bits after the last component.
            ``"float32"`` changes nothing.
        ranges: float32 ``[2, dim]`` from `calibrate`, for int8 and uint8 alone. None takes those
            of ``vectors`` themselves: such codes compare with one another only.

    Returns:
        ``[n, dim]`` int8 (uint8 less 128) or uint8; ``[n, ceil(dim / 8)]`` int8 (the bytes less
        128) or uint8; float32 ``[n, dim]``, not copied where it is so already. ``[dim]`` gives
        one row.

    Raises:
        InputError: Another shape, dtype or precision; ranges that do not fit, or that one vector
            cannot give; NaN or infinity in row ``index``, which only float32 can keep.

    Example:
        >>> vectors = np.array([[64.25, -99.5], [-1, 200]], np.float32)
        >>> quantize(vectors, "uint8", ranges=[[0.0, -100.0], [127.5, 155.0]])
        array([[128,   0],
               [  0, 255]], dtype=uint8)
        >>> quantize(vectors, "ubinary")
        array([[128],
               [ 64]], dtype=uint8)
    """
    check_precision(precision)
    if ranges is not None and precision not in ("int8", "uint8"):
        raise InputError(f"ranges are for int8 and uint8; precision is {precision!r}")
    if precision == "float32":
        return _rows(vectors)
    rows = _finite(vectors)
    if precision == "ubinary":
        return np.packbits(rows > 0, axis=-1)
    if precision == "binary":
        return _signed(np.packbits(rows > 0, axis=-1))
    codes = _steps(
        rows, _own_ranges(rows) if ranges is None else check_ranges(ranges, rows.shape[-1])
    )
    return _signed(codes) if precision == "int8" else codes


def _steps(rows: Floats, ranges: Floats) -> npt.NDArray[np.uint8]:
    """The number of whole steps from the minimum, 0 to 255."""
    low, high = ranges
    step = (high - low) / np.float32(255)
    step[step == 0] = 1
    with np.errstate(over="ignore"):  # infinitely many steps are cut to 255
        steps = np.floor((rows - low) / step)
    codes: npt.NDArray[np.uint8] = np.clip(steps, 0, 255).astype(np.uint8)
    return codes


def _signed(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Less 128."""
    signed: npt.NDArray[np.int8] = (codes ^ np.uint8(128)).view(np.int8)
    return signed


def _own_ranges(rows: Floats) -> Floats:
    if rows.ndim == 2 and len(rows) == 0:
        return np.zeros((2, rows.shape[1]), np.float32)
    if rows.ndim == 1 or len(rows) == 1:
        raise InputError("one vector has no ranges; give ranges=calibrate(many vectors)")
    if len(rows) < N_STABLE:
        logging.getLogger("jmm").warning(
            "quantization ranges come from %d vectors alone; calibrate on a few hundred", len(rows)
        )
    return check_ranges(calibrate(rows), rows.shape[1])


def check_ranges(ranges: npt.ArrayLike, dim: int) -> Floats:
    """``ranges`` as float32 ``[2, dim]``.

    Raises:
        InputError: They have another shape, or are no ranges.
    """
    result = floats(ranges, "ranges")
    if result.shape != (2, dim):
        raise InputError(f"ranges have shape {list(result.shape)}; [2, {dim}] is needed")
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~((result[0] <= result[1]) & np.isfinite(result[1] - result[0]))
    if bad.any():
        component = int(np.argmax(bad))
        low, high = result[:, component]
        raise InputError(
            f"ranges of component {component} are {low} to {high}; "
            "minimum <= maximum, finite and not beyond float32 apart, is needed"
        )
    return result


def _rows(vectors: npt.ArrayLike) -> Floats:
    rows = floats(vectors, "vectors")
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0:
        raise InputError(f"vectors have shape {list(rows.shape)}; [n, dim] or [dim] is needed")
    return rows


def _finite(vectors: npt.ArrayLike) -> Floats:
    rows = _rows(vectors)
    finite = np.isfinite(rows)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0].tolist())
        raise InputError(
            f"component {place[-1]} is {rows[place]}; finite is needed",
            index=place[0] if rows.ndim == 2 else None,
        )
    return rows
