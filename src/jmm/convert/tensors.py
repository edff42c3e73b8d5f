"""The tensors of a checkpoint: found by their headers, read in bounded pieces.

The files are read and not mapped, since mapped pages count as the process's memory, and with
numpy alone, which has no bfloat16: so not through the package safetensors.
Source of the format: https://github.com/huggingface/safetensors (an 8-byte length, a JSON header,
the data).
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.convert.json_file import opened, read, shown
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MAX_HEADER = 100_000_000  # the format's own limit
_INDEX = "model.safetensors.index.json"
_ONE_FILE = "model.safetensors"


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies.

    Attributes:
        name: As the checkpoint names it.
        path: Its file.
        dtype: "F32", "F16" or "BF16".
        shape: Slowest axis first.
        offset: Of its first byte in the file.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def fail(self, why: str) -> ModelLoadError:
        """An error about this tensor."""
        return ModelLoadError(f"{self.path}: tensor {self.name} {why}")

    def pieces(
        self, start: int, stop: int, n_elements: int
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Rows ``start:stop`` as they are stored, bfloat16 as uint16.

        Args:
            start: First row, an index of the slowest axis.
            stop: One past the last.
            n_elements: Most elements of a piece; a piece has one row at least.

        Yields:
            The index of a piece's first row, and the piece ``[rows, *shape[1:]]``.

        Raises:
            ModelLoadError: The file cannot be read, or has become shorter than its header says.
        """
        width = math.prod(self.shape[1:])
        step = max(n_elements // width, 1)
        dtype = np.dtype(_DTYPES[self.dtype])
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + start * width * dtype.itemsize)
                for first in range(start, stop, step):
                    n = min(step, stop - first)
                    piece = np.empty(n * width, dtype)
                    if file.readinto(piece.data) < piece.nbytes:
                        raise self.fail("is cut short")
                    yield first, piece.reshape(n, *self.shape[1:])
        except ModelLoadError:
            raise
        except OSError as error:
            raise self.fail(f"cannot be read: {error.strerror}") from None

    def array(self) -> npt.NDArray[np.float32]:
        """All of a small tensor.

        Raises:
            ModelLoadError: It holds NaN or infinity.
        """
        _, stored = next(self.pieces(0, self.shape[0], math.prod(self.shape)))
        return self.widen(stored)

    def widen(self, stored: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """A stored piece as float32.

        Raises:
            ModelLoadError: It holds NaN or infinity.
        """
        if self.dtype == "BF16":  # the upper half of a float32
            values = (stored.astype(np.uint32) << 16).view(np.float32)
        else:
            values = stored.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise self.fail("holds NaN or infinity")
        return values


def read_header(path: Path) -> dict[str, Tensor]:
    """Reads the header of one safetensors file.

    Returns:
        ``{name: tensor}``, in the order of the header.

    Raises:
        ModelLoadError: The file is missing, damaged or cut short, or a dtype is not supported.
    """
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= min(size, _MAX_HEADER) else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelLoadError(f"{path}: not a safetensors file, or cut short in its header")
    header.pop("__metadata__", None)
    return {name: _entry(path, name, entry, 8 + length, size) for name, entry in header.items()}


def _entry(path: Path, name: str, entry: Any, base: int, size: int) -> Tensor:
    try:
        dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, start, end))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole or not shape or not math.prod(shape):
        raise ModelLoadError(f"{path}: the header's entry of tensor {name} is damaged")
    tensor = Tensor(name, path, dtype, shape, base + start)
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise tensor.fail(f"has dtype {shown(dtype)}; supported are {', '.join(_DTYPES)}")
    if end - start != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
        raise tensor.fail(f"has {end - start} bytes; {dtype} {list(shape)} has others")
    if base + end > size:
        raise tensor.fail(
            f"ends at byte {base + end:,} and the file at {size:,}: it is cut short; copy or "
            "download it again"
        )
    return tensor


def find(folder: Path) -> dict[str, Tensor]:
    """Finds the tensors of a checkpoint, in one file or in several with an index.

    Where there are both, the one file counts, as it does for transformers.

    Raises:
        ModelLoadError: A file is missing or damaged, or the index and the files disagree.
    """
    index = folder / _INDEX
    if (folder / _ONE_FILE).exists():
        return read_header(folder / _ONE_FILE)
    if not index.exists():
        raise ModelLoadError(
            f"{folder}: there is neither {_ONE_FILE} nor {_INDEX}; weights are read from "
            "safetensors alone"
        )
    weight_map = read(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) and "/" not in name for name in weight_map.values()
    ):
        raise ModelLoadError(f"{index}: weight_map is no object from tensor to file name")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(weight_map.values())):
        tensors |= read_header(folder / shard)
    for name, shard in weight_map.items():
        if name not in tensors or tensors[name].path.name != shard:
            raise ModelLoadError(f"{index}: tensor {name} is not in {shard}")
    return tensors
