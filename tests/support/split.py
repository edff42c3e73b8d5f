"""Cuts a GGUF file into parts as llama.cpp's gguf-split does: the keys are in the first alone."""

from __future__ import annotations

import struct
from pathlib import Path

from support import hostile


def split(source: Path, stem: Path, n: int) -> list[Path]:
    """Writes ``stem-00001-of-0000N.gguf`` and so on; tensors are shared out in order."""
    whole = hostile.parse(source.read_bytes())
    sizes = _sizes(whole)
    paths = []
    for number in range(n):
        part = range(number * len(whole.tensors) // n, (number + 1) * len(whole.tensors) // n)
        data, tensors = b"", []
        for index in part:
            start = int.from_bytes(whole.tensors[index][-1][1], "little")
            tensors.append([*whole.tensors[index][:-1], ("offset", struct.pack("<Q", len(data)))])
            data += whole.data[start : start + sizes[index]]
        keys = whole.keys if number == 0 else []
        file = hostile.File(list(whole.top), [*keys, *_keys(number, n, whole)], tensors, data)
        file.count()
        paths.append(stem.with_name(f"{stem.name}-{number + 1:05}-of-{n:05}.gguf"))
        paths[-1].write_bytes(file.bytes())
    return paths


def _keys(number: int, n: int, whole: hostile.File) -> list[hostile.Entry]:
    return [
        hostile.scalar("split.no", "H", number),
        hostile.scalar("split.count", "H", n),
        hostile.scalar("split.tensors.count", "i", len(whole.tensors)),
    ]


def _sizes(whole: hostile.File) -> list[int]:
    """Bytes up to the next tensor."""
    starts = [int.from_bytes(entry[-1][1], "little") for entry in whole.tensors]
    after = sorted([*starts, len(whole.data)])
    return [after[after.index(start) + 1] - start for start in starts]
