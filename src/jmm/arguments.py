"""Checks of what the caller passed, before anything is computed."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError, JmmError, OutOfMemoryError
from jmm.vectors import Precision, check_precision

OnError: TypeAlias = Literal["raise", "nan"]
MultiVectors: TypeAlias = Literal["both"] | bool

MAX_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Options:
    """What every encode method takes; documented at `Embedder.encode_images`."""

    task: str | None = None
    multi_vector: MultiVectors = False
    truncate_dim: int | None = None
    normalize: bool = True
    precision: Precision = "float32"
    ranges: npt.ArrayLike | None = None
    batch_size: int | None = None
    on_error: OnError = "raise"
    show_progress: bool | None = None
    pool_factor: int | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "nan"):
            raise InputError(f"on_error is {self.on_error!r}; allowed are 'raise' and 'nan'")
        if not isinstance(self.multi_vector, bool | str) or self.multi_vector not in (
            True,
            False,
            "both",
        ):
            raise InputError(
                f"multi_vector is {self.multi_vector!r}; allowed are True, False and 'both'"
            )
        for name in ("normalize", "show_progress"):
            flag(name, getattr(self, name))
        count("batch_size", self.batch_size)
        check_precision(self.precision)
        if self.ranges is not None and self.precision not in ("int8", "uint8"):
            raise InputError(f"ranges are for int8 and uint8; precision is {self.precision!r}")
        if self.precision != "float32":
            self._check_codes()
        if self.multi_vector is True and self.truncate_dim is not None:
            raise InputError(
                f"truncate_dim is {self.truncate_dim} with multi_vector=True; token vectors are "
                "not truncated"
            )
        if self.pool_factor is not None:
            self._check_pooling()

    def _check_codes(self) -> None:
        if self.multi_vector:
            raise InputError(
                f"precision is {self.precision!r} with multi_vector=True; take float32, and "
                "quantize(result.values, ...)"
            )
        if self.on_error == "nan":
            raise InputError(
                f"on_error is 'nan' with precision={self.precision!r}, which has no NaN; take "
                "float32, and quantize what is finite"
            )
        if self.precision in ("int8", "uint8") and self.ranges is None:
            raise InputError(
                f"precision {self.precision!r} needs ranges=calibrate(vectors) of a few hundred "
                "float32 vectors: without them a row would depend on its company"
            )

    def _check_pooling(self) -> None:
        if not self.multi_vector:
            raise InputError("pool_factor is for multi_vector=True")
        if not self.normalize:
            raise InputError("pool_factor needs normalize=True: it compares unit vectors")
        count("pool_factor", self.pool_factor)


def flag(name: str, value: object) -> None:
    """Raises InputError unless ``value`` is True, False or None."""
    if not isinstance(value, bool | np.bool_ | None):
        raise InputError(f"{name} is {value!r}; True or False is needed")


def whole(name: str, value: object, low: int, high: int = MAX_COUNT) -> int:
    """``value`` as an int within limits.

    Raises:
        InputError: It is no whole number, or out of the limits.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} is {value!r}; a whole number is needed")
    if not low <= value <= high:
        raise InputError(f"{name} is {value}; {low:,} to {high:,} are allowed")
    return int(value)


def count(name: str, value: object, high: int = MAX_COUNT) -> int:
    """``value`` as an int of at least 1, or 0 for None."""
    return 0 if value is None else whole(name, value, 1, high)


def listed(items: object, what: str) -> list[Any]:
    """All items of an iterable.

    Raises:
        InputError: ``items`` is not iterable, or is a mapping or bytes.
    """
    refused = isinstance(items, Mapping | bytes | bytearray | memoryview)
    if refused or not isinstance(items, Iterable) or getattr(items, "ndim", 1) == 0:
        hint = (
            "; encode_images takes pictures" if what == "texts" and hasattr(items, "size") else ""
        )
        raise InputError(
            f"{type(items).__name__} given; one of the {what} or an iterable of them{hint}"
        )
    return list(items)


def path(name: str, value: object, of: str = "file") -> Path:
    """``value`` as the path of a file, or of what ``of`` says.

    Raises:
        InputError: It is no path, or holds what no name of a file can.
    """
    try:
        found = os.fsdecode(value)  # type: ignore[arg-type]
        usable = b"\0" not in os.fsencode(found)
    except (TypeError, UnicodeError):
        usable = False
    if not usable:
        raise InputError(f"{name} is {value!r}; the path of a {of} is needed")
    return Path(found)


def picker(key: str | Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """What takes that part of an item that is to be embedded: None for the item itself."""
    return key if key is None or callable(key) else operator.itemgetter(key)


def text(item: object) -> str:
    """``item`` as a text that UTF-8 can hold.

    Raises:
        InputError: It is no str, or holds a lone surrogate.
    """
    if not isinstance(item, str):
        raise InputError(f"a text is a str, and this is {type(item).__name__}")
    item = str.__str__(item)  # of a subclass, what it holds and not what it says
    try:
        item.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text holds a lone surrogate, {item[error.start]!a} at position {error.start}; "
            "decode the source with errors='replace'"
        ) from None
    return item


PatchItem: TypeAlias = "tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]"


def split_patches(
    patches: npt.ArrayLike, grid_thw: npt.ArrayLike, n_elem: int
) -> tuple[list[PatchItem], bool]:
    """Cuts the patches of many pictures apart.

    Args:
        patches: float32 ``[sum of t*h*w, n_elem]``.
        grid_thw: whole numbers ``[n, 3]``, or ``[3]`` for one picture.
        n_elem: Numbers per patch.

    Returns:
        Per picture its patches and its ``(t, h, w)``, and whether one picture was given.

    Raises:
        InputError: Wrong type or shape, or the two do not agree.
    """
    rows, grids = _array(patches, "patches"), _array(grid_thw, "grid_thw")
    if rows.dtype != np.float32:
        raise InputError(f"patches have dtype {rows.dtype}; float32 is needed")
    if n_elem == 0:
        raise InputError(
            "the vision tower takes no patches: those are of Qwen's families; pass the pictures"
        )
    if rows.ndim != 2 or rows.shape[1] != n_elem:
        raise InputError(f"patches have shape {list(rows.shape)}; [n, {n_elem}] is needed")
    one = grids.ndim == 1 and grids.size > 0
    grids = grids.reshape(-1, 3) if grids.size == 0 or grids.shape == (3,) else grids
    if (grids.size and grids.dtype.kind not in "iu") or grids.ndim != 2 or grids.shape[1] != 3:
        raise InputError(
            f"grid_thw has dtype {grids.dtype} and shape {list(grids.shape)}; whole numbers [n, 3] "
            "or [3] are needed"
        )
    sizes = [int(t) * int(h) * int(w) for t, h, w in grids]
    if min(sizes, default=1) < 1 or sum(sizes) != len(rows):
        raise InputError(
            f"there are {len(rows)} patches, and grid_thw asks for {sum(sizes)}; the grids are "
            f"{grids[:8].tolist()}{'...' if len(grids) > 8 else ''}"
        )
    stops = np.cumsum(sizes, dtype=np.int64)
    return [
        (rows[stop - size : stop], grid)
        for stop, size, grid in zip(stops, sizes, grids.astype(np.int64), strict=True)
    ], one


def _array(value: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
        masked = isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value)
    except MemoryError:
        raise OutOfMemoryError(f"no memory for {name} as an array") from None
    except Exception as error:
        raise InputError(f"{name} cannot be read as an array: {error}") from None
    if masked:
        raise InputError(f"{name} has masked values; give them a value with .filled()")
    return array


def check_patches(item: PatchItem) -> npt.NDArray[np.float32]:
    """The patches of one still picture, C-contiguous and aligned.

    Raises:
        InputError: The picture has several frames, or a number is NaN or infinite.
    """
    patches, (frames, _, _) = item
    if frames != 1:
        raise InputError(f"the grid has t={frames}; still pictures have 1")
    if not np.isfinite(patches).all():
        row, column = np.argwhere(~np.isfinite(patches))[0]
        raise InputError(f"patches[{row}, {column}] is {patches[row, column]}; finite is needed")
    return np.require(patches, requirements=("C", "A"))


def fail(error: Exception, index: int, on_error: OnError) -> None:
    """Raises what went wrong with one item as one of our errors, or logs it and returns.

    Args:
        error: What was raised.
        index: Of the item.
        on_error: "raise" or "nan".
    """
    if isinstance(error, MemoryError) and not isinstance(error, JmmError):
        error = OutOfMemoryError("no memory for the item")
    elif not isinstance(error, JmmError):
        # the item is an object of the caller's, whose methods may raise anything
        error = InputError(f"the item cannot be read: {type(error).__name__}: {error}")
    error.index = index
    if on_error == "raise":
        raise error
    logging.getLogger("jmm").warning("%s", error)
