"""The caller's numbers as float32 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError

Floats = npt.NDArray[np.float32]


def as_array(value: object, what: str, index: int | None = None) -> npt.NDArray[Any]:
    """``value`` as a numpy array, not copied where it is one.

    Raises:
        InputError: It cannot be read as one; the message calls it ``what``.
    """
    try:
        return np.asarray(value)
    except Exception as error:
        raise InputError(f"{what} cannot be read as an array: {error}", index=index) from None


def floats(value: object, what: str, index: int | None = None) -> Floats:
    """``value`` as float32, C-contiguous, not copied where it is so already.

    Args:
        value: Floating-point numbers of any width and shape.
        what: What the message calls it.
        index: Its position in the caller's input.

    Raises:
        InputError: It cannot be read as an array, or holds no floating-point numbers.
    """
    array = as_array(value, what, index)
    if array.dtype == np.float32 and array.flags.c_contiguous:
        return array
    if array.dtype.kind != "f":
        raise InputError(f"{what}: dtype is {array.dtype}; float32 is needed", index=index)
    with np.errstate(over="ignore"):  # infinity then, which is found where it matters
        return np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)


def token_rows(value: object, what: str, index: int | None = None) -> Floats:
    """The vectors of one item's tokens.

    Args:
        value: Floating-point numbers ``[tokens, dim]``.
        what: What the message calls it.
        index: Its position in the caller's input.

    Returns:
        float32 ``[tokens, dim]``, C-contiguous, not copied where it is so already.

    Raises:
        InputError: Another shape or dtype, or no components.
    """
    rows = floats(value, what, index)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InputError(
            f"{what} has shape {list(rows.shape)}; [tokens, dim] is needed", index=index
        )
    return rows


def check_finite(rows: Floats, what: str, index: int | None = None) -> None:
    """Refuses NaN and infinity.

    Raises:
        InputError: ``rows`` holds one; the message says where.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(rows, axis=None)  # one pass, no copy; NaN and infinity stay in it
    if not np.isfinite(total) and not np.isfinite(rows).all():
        place = tuple(np.argwhere(~np.isfinite(rows))[0])
        raise InputError(
            f"{what}[{', '.join(map(str, place))}] is {rows[place]}; finite is needed", index=index
        )
