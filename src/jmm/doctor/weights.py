"""Which weights of a GGUF file are not finite, as the numbers that they stand for."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jmm import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmm.gguf_header import Header

BLOCK_BYTES = 2**22
"""About so much of a file is in memory at a time."""


@dataclass(frozen=True)
class BadTensor:
    """A tensor with values that are not finite.

    Attributes:
        file: Where it lies.
        name: As in the file.
        dtype: Type of its values.
        n_values: How many there are.
        n_nan: Of them NaN.
        n_inf: Of them infinite.
        first: Place of the first of these, slowest axis first.
    """

    file: str
    name: str
    dtype: str
    n_values: int
    n_nan: int
    n_inf: int
    first: tuple[int, ...]


def n_bytes(header: Header) -> int:
    """Bytes of a file's weights, those of its other parts included."""
    return sum(_n_bytes(header, name) for name in header.shapes)


def scan(header: Header, advance: Callable[[int], object] = lambda _: None) -> Iterator[BadTensor]:
    """Reads all weights of a model, a few megabytes at a time.

    Args:
        header: Of the file.
        advance: Called with numbers of bytes that were read.

    Yields:
        Tensors with NaN or infinity, in the file's order.

    Raises:
        OSError: A file cannot be read.
    """
    types = _core.tensor_types()
    buffer = np.empty(BLOCK_BYTES, np.uint8)
    with ExitStack() as stack:
        files = {
            path: stack.enter_context(Path(path).open("rb"))
            for path in {header.path, *header.parts.values()}
        }
        for name, dtype in header.dtypes.items():
            path = header.parts.get(name, header.path)
            number, block, size = types[dtype]
            chunk = buffer[: len(buffer) // size * size]
            files[path].seek(header.ends[name] - _n_bytes(header, name))
            n_nan = n_inf = done = 0
            first = -1
            left = _n_bytes(header, name)
            while left:
                part = chunk[: min(left, len(chunk))]
                if files[path].readinto(part.data) < len(part):
                    raise OSError(f"{path}: the file ends within tensor {name}")
                found = _core.measure(part, number)
                if found is not None:
                    first = done + found[2] if first < 0 <= found[2] else first
                    n_nan, n_inf = n_nan + found[0], n_inf + found[1]
                done += len(part) // size * block
                left -= len(part)
                advance(len(part))
            if first >= 0:
                shape = _shape(header, name)
                place = tuple(int(i) for i in np.unravel_index(first, shape))
                yield BadTensor(path, name, dtype, done, n_nan, n_inf, place)


def _n_bytes(header: Header, name: str) -> int:
    _, block, size = _core.tensor_types()[header.dtypes[name]]
    return math.prod(header.shapes[name]) // block * size


def _shape(header: Header, name: str) -> tuple[int, ...]:
    """Slowest axis first, without those of length 1 in front."""
    shape = list(header.shapes[name])
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return tuple(reversed(shape))
