"""The files below the paths that the user names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

Kind: TypeAlias = Literal["picture", "pdf", "text"]

_SUFFIXES: dict[Kind, str] = {
    "picture": ".avif .bmp .gif .jpeg .jpg .jp2 .pbm .pgm .png .ppm .tga .tif .tiff .webp",
    "pdf": ".pdf",
    "text": ".csv .log .markdown .md .org .rst .tex .text .tsv .txt",
}
KINDS: dict[str, Kind] = {
    suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}


class Found(NamedTuple):
    """A file to index."""

    path: str
    kind: Kind


class Unreadable(NamedTuple):
    """A path that cannot be looked at, and why."""

    path: str
    reason: str


def walk(
    paths: Iterable[str], kinds: Container[Kind], besides: str
) -> Iterator[Found | Unreadable]:
    """Finds files, in folders recursively, in the order of their names.

    Links are followed. A folder that is reached twice counts once, so that loops end. In folders
    hidden entries and files of other kinds are passed over; a path of ``paths`` never is.

    Args:
        paths: Absolute paths of files and folders.
        kinds: The kinds that are wanted.
        besides: A folder to pass over.

    Yields:
        Each file once, under the first path by which it is reached in its folder.
    """
    files: set[str] = set()
    folders = {_identity(besides)}
    for path in paths:
        for item in _below(path, kinds, folders):
            if item.path not in files:
                files.add(item.path)
                yield item


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _below(
    root: str, kinds: Container[Kind], folders: set[tuple[int, int] | None]
) -> Iterator[Found | Unreadable]:
    pending = [root]
    while pending:
        path = pending.pop()
        kind = KINDS.get(PurePath(path).suffix.lower())
        named = path == root
        wanted = kind in kinds
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                identity = status.st_dev, status.st_ino
                if identity not in folders:
                    folders.add(identity)
                    names = sorted(os.listdir(path), reverse=True)
                    pending += [os.path.join(path, name) for name in names if name[0] != "."]
            elif kind is not None and wanted and stat.S_ISREG(status.st_mode):
                yield Found(path, kind)
            elif named or wanted:
                yield Unreadable(path, _why_not(kind, wanted=wanted))
        except OSError as error:
            # a link to nowhere matters by its name alone; a folder that cannot be listed does
            if named or wanted or error.errno not in (errno.ENOENT, errno.ELOOP):
                yield Unreadable(path, f"cannot be opened ({error.strerror})")


def _why_not(kind: Kind | None, *, wanted: bool) -> str:
    if kind is None:
        return f"neither picture, PDF nor text by its name; known are {' '.join(KINDS)}"
    return "is no regular file" if wanted else "the model reads no pictures: it has no mmproj"
