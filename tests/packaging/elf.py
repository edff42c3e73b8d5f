"""Reads what an ELF shared object exports and needs (64 bits, little endian).

Layout: System V ABI, generic part (gABI), chapters "Object Files" and "Dynamic Linking".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED, DT_RPATH, DT_RUNPATH = 1, 15, 29
STB_LOCAL, SHN_UNDEF = 0, 0


@dataclass(frozen=True)
class Section:
    kind: int
    offset: int
    size: int
    link: int


class SharedObject:
    """One file, read whole."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        size, count = struct.unpack_from("<HH", self.data, 0x3A)
        self.sections = [self._section(table + index * size) for index in range(count)]

    def _section(self, at: int) -> Section:
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", self.data, at)
        return Section(kind, offset, size, link)

    def _of_kind(self, kind: int) -> Iterator[Section]:
        return (section for section in self.sections if section.kind == kind)

    def _string(self, section: Section, at: int) -> str:
        start = self.sections[section.link].offset + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def exports(self) -> set[str]:
        """Names of the dynamic symbols that are defined here and visible outside."""
        return {name for name, defined in self._symbols() if defined}

    def imports(self) -> set[str]:
        """Names of the dynamic symbols that other objects must define."""
        return {name for name, defined in self._symbols() if not defined}

    def _symbols(self) -> Iterator[tuple[str, bool]]:
        for section in self._of_kind(SHT_DYNSYM):
            for at in range(section.offset, section.offset + section.size, 24):
                name, info, _, index = struct.unpack_from("<IBBH", self.data, at)
                if info >> 4 != STB_LOCAL:
                    yield self._string(section, name), index != SHN_UNDEF

    def dynamic(self, tag: int) -> list[str]:
        """Strings of the dynamic entries with this tag."""
        return [
            self._string(section, value)
            for section in self._of_kind(SHT_DYNAMIC)
            for found, value in struct.iter_unpack(
                "<QQ", self.data[section.offset : section.offset + section.size]
            )
            if found == tag
        ]
