"""Rows of the model's numbers: cut to a legal dimension, brought to unit length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jmm.errors import InputError


def check_dim(truncate_dim: int | None, dim: int, legal: tuple[int, ...]) -> int:
    """The number of components to keep.

    Args:
        truncate_dim: What the caller asked for, None for all.
        dim: Components that the model gives.
        legal: Values that the model was trained for; empty for any.

    Raises:
        InputError: The value is not legal; the message lists those that are.
    """
    if truncate_dim is None:
        return dim
    allowed = [value for value in legal if value < dim] + [dim] if legal else None
    is_int = isinstance(truncate_dim, int | np.integer) and not isinstance(truncate_dim, bool)
    if is_int and (truncate_dim in allowed if allowed else 1 <= truncate_dim <= dim):
        return int(truncate_dim)
    choices = ", ".join(map(str, allowed)) if allowed else f"1 to {dim}"
    raise InputError(f"truncate_dim is {truncate_dim!r}; allowed are {choices}")


def finish(
    pooled: npt.NDArray[np.float32], n_components: int, *, normalize: bool
) -> npt.NDArray[np.float32]:
    """Cuts rows to their first components and brings them to unit length.

    Args:
        pooled: float32 ``[n, dim]``; rows of NaN stay NaN, rows of zeros stay zeros.
        n_components: Components to keep.
        normalize: Divides each row by its Euclidean norm.

    Returns:
        float32 ``[n, n_components]``, C-contiguous.

    Example:
        >>> finish(np.array([[3, 4, 5]], np.float32), 2, normalize=True)
        array([[0.6, 0.8]], dtype=float32)
    """
    rows = np.ascontiguousarray(pooled[:, :n_components])
    if not normalize:
        return rows
    wide = rows.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    return np.asarray(wide / np.where(norms == 0, 1, norms), dtype=np.float32)
