"""The header of a GGUF file as bytes, so that a copy keeps every key as it is.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from jmm import _core
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jmm.gguf_header import Header

VERSION = 3
_FIRST_KEY = 24
_U32, _STRING, _ARRAY = 4, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, _U32: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

TypeTable: TypeAlias = "Mapping[str, tuple[int, int, int]]"
TYPES: TypeTable = _core.tensor_types()
"""``{name: (number in a file, elements per block, bytes per block)}``."""
_NAMES = {number: name for name, (number, _, _) in TYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies.

    Attributes:
        name: Its name; bytes that are no UTF-8 are surrogates.
        type: Name of its ggml type.
        shape: ne as in the file, fastest first; as many as it has axes.
        offset: Of its first byte in the file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int

    @property
    def n_columns(self) -> int:
        """Elements per row."""
        return self.shape[0] if self.shape else 1

    @property
    def n_rows(self) -> int:
        """Rows of all further axes."""
        return math.prod(self.shape[1:])

    @property
    def row_size(self) -> int:
        """Bytes per row."""
        _, block, size = TYPES[self.type]
        return self.n_columns // block * size

    @property
    def size(self) -> int:
        """Bytes."""
        return self.n_rows * self.row_size


@dataclass(frozen=True)
class Layout:
    """What a header holds.

    Attributes:
        keys: ``{key: its bytes in the file, key and value}``, in the file's order.
        tensors: In the file's order.
        alignment: Bytes of which each tensor's offset is a multiple.
    """

    keys: Mapping[str, bytes]
    tensors: Sequence[Tensor]
    alignment: int


def u32(key: str, value: int) -> bytes:
    """The bytes of a key that holds a uint32."""
    return _string(key) + struct.pack("<II", _U32, value)


def u32_array(key: str, values: Sequence[int]) -> bytes:
    """The bytes of a key that holds an array of uint32."""
    head = struct.pack("<IIQ", _ARRAY, _U32, len(values))
    return _string(key) + head + struct.pack(f"<{len(values)}I", *values)


def tensors_start(header: Header) -> int:
    """Offset of the first tensor's bytes; the file's size where it has none."""
    starts = (
        end - Tensor("", header.dtypes[name], header.shapes[name], 0).size
        for name, end in header.ends.items()
    )
    return min(starts, default=Path(header.path).stat().st_size)


def read_strings(header: Header, key: str) -> list[bytes]:
    """The values of a key that holds an array of strings; none if it is missing.

    Args:
        header: Of the file, as it is now.
        key: Its name.

    Raises:
        ModelLoadError: The file has changed since.
    """
    data = _read(header.path, tensors_start(header))
    try:
        (n_keys,) = struct.unpack_from("<Q", data, 16)
        at = _FIRST_KEY
        for _ in range(n_keys):
            name, at = _read_string(data, at)
            kind, item, n_items = struct.unpack_from("<IIQ", data, at)
            if name == key and (kind, item) == (_ARRAY, _STRING):
                return _strings(data, at + 16, n_items)
            at = _skip_value(data, at + 4, kind)
    except (struct.error, KeyError):
        raise _changed(header.path) from None
    return []


def _strings(data: bytes, at: int, n_items: int) -> list[bytes]:
    found = []
    for _ in range(n_items):
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8 + size
        found.append(data[at - size : at])
    return found


def _read(path: str, n_bytes: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(n_bytes)


def _changed(path: str) -> ModelLoadError:
    return ModelLoadError(f"{path}: the header has changed while it was read")


def read_layout(path: str, start: int, alignment: int) -> Layout:
    """Reads a header that `_core.read_gguf` has found to be sound.

    Args:
        path: The file.
        start: Where its tensors' bytes start.
        alignment: Its ``general.alignment``, or 32.

    Raises:
        ModelLoadError: The file has changed since.
    """
    try:
        return _parse(_read(path, start), start, alignment)
    except (struct.error, KeyError):
        raise _changed(path) from None


def _parse(data: bytes, start: int, alignment: int) -> Layout:
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    keys, tensors, at = {}, [], _FIRST_KEY
    for _ in range(n_keys):
        first = at
        name, at = _read_string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        at = _skip_value(data, at + 4, kind)
        keys[name] = data[first:at]
    for _ in range(n_tensors):
        name, at = _read_string(data, at)
        (n_axes,) = struct.unpack_from("<I", data, at)
        *shape, number, offset = struct.unpack_from(f"<{n_axes}QIQ", data, at + 4)
        at += 16 + 8 * n_axes
        tensors.append(Tensor(name, _NAMES[number], tuple(shape), start + offset))
    return Layout(keys, tensors, alignment)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    stop = at + 8 + size
    return data[at + 8 : stop].decode("utf-8", "surrogateescape"), stop


def _skip_value(data: bytes, at: int, kind: int) -> int:
    if kind == _STRING:
        (size,) = struct.unpack_from("<Q", data, at)
        return int(at + 8 + size)
    if kind != _ARRAY:
        return at + _SIZES[kind]
    item, n_items = struct.unpack_from("<IQ", data, at)
    at += 12
    if item != _STRING:
        return int(at + n_items * _SIZES[item])
    for _ in range(n_items):
        at = _skip_value(data, at, _STRING)
    return at


def build_header(
    keys: Mapping[str, bytes], tensors: Sequence[Tensor], alignment: int
) -> tuple[bytes, list[Tensor]]:
    """Lays tensors out one after the other.

    Args:
        keys: As in `Layout`.
        tensors: Their offsets are not looked at.
        alignment: As in `Layout`.

    Returns:
        The bytes before the first tensor, and the tensors with their offsets in the file.
    """
    parts = [struct.pack("<4sIQQ", b"GGUF", VERSION, len(tensors), len(keys)), *keys.values()]
    offsets, at = [], 0
    for tensor in tensors:
        offsets.append(at)
        fields = (len(tensor.shape), *tensor.shape, TYPES[tensor.type][0], at)
        parts += [_string(tensor.name), struct.pack(f"<I{len(tensor.shape)}QIQ", *fields)]
        at = aligned(at + tensor.size, alignment)
    header = b"".join(parts)
    header = header.ljust(aligned(len(header), alignment), b"\0")
    placed = [
        Tensor(tensor.name, tensor.type, tensor.shape, len(header) + offset)
        for tensor, offset in zip(tensors, offsets, strict=True)
    ]
    return header, placed


def aligned(size: int, alignment: int) -> int:
    """The next multiple of ``alignment``."""
    return -(-size // alignment) * alignment


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data
