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


class PassedOver(NamedTuple):
    """A file in a folder that is of no kind that is wanted."""

    path: str


Item: TypeAlias = "Found | Unreadable | PassedOver"


def walk(paths: Iterable[str], kinds: Container[Kind], besides: str) -> Iterator[Item]:
    """Finds files, in folders recursively, in the order of their names.

    Links are followed, after all else: what can be reached without them has its own path. A
    folder that is reached twice counts once, so that loops end. In folders hidden entries and
    files of other kinds are passed over; a path of ``paths`` never is.

    Args:
        paths: Absolute paths of files and folders.
        kinds: The kinds that are wanted.
        besides: A folder to pass over.

    Yields:
        Each file once, under the first path by which it is reached in its folder.
    """
    return _Walk(list(paths), kinds, besides).run()


class _Walk:
    def __init__(self, roots: list[str], kinds: Container[Kind], besides: str) -> None:
        self._roots = dict.fromkeys(roots)
        self._kinds = kinds
        self._files: set[str] = set()
        self._folders = {_identity(besides)}
        self._linked: list[str] = []

    def run(self) -> Iterator[Item]:
        for root in sorted(self._roots, key=lambda root: os.path.realpath(root) != root):
            yield from self._once(self._below(root))
        while self._linked:
            yield from self._once(self._below(self._linked.pop(0)))

    def _once(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            if item.path not in self._files:
                self._files.add(item.path)
                yield item

    def _below(self, root: str) -> Iterator[Item]:
        pending = [root]
        while pending:
            path = pending.pop()
            try:
                status = os.stat(path)
                if not stat.S_ISDIR(status.st_mode):
                    yield from self._file(path, status)
                elif path != root and os.path.islink(path):
                    self._linked.append(path)
                elif (status.st_dev, status.st_ino) not in self._folders:
                    self._folders.add((status.st_dev, status.st_ino))
                    names = sorted(os.listdir(path), reverse=True)
                    pending += [os.path.join(path, name) for name in names if name[0] != "."]
            except OSError as error:
                # a link to nowhere matters by its name alone; a folder that cannot be listed does
                matters = path in self._roots or kind_of(path) in self._kinds
                if matters or error.errno not in (errno.ENOENT, errno.ELOOP):
                    yield Unreadable(path, _why(error, path))

    def _file(self, path: str, status: os.stat_result) -> Iterator[Item]:
        kind = kind_of(path)
        wanted = kind in self._kinds
        is_regular = stat.S_ISREG(status.st_mode)
        if kind is not None and wanted and is_regular:
            yield Found(path, kind)
        elif wanted or path in self._roots:
            yield Unreadable(path, _why_not(kind, wanted=wanted))
        elif is_regular:
            yield PassedOver(path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def kind_of(path: str) -> Kind | None:
    """The kind of a file by its name; None for others."""
    return KINDS.get(PurePath(path).suffix.lower())


def _why(error: OSError, path: str) -> str:
    if error.errno == errno.ENOENT and os.path.islink(path):
        return "is a link that leads nowhere"
    return f"cannot be opened ({error.strerror})"


def _why_not(kind: Kind | None, *, wanted: bool) -> str:
    if kind is None:
        return f"neither picture, PDF nor text by its name; known are {' '.join(KINDS)}"
    return "is no regular file" if wanted else "the model reads no pictures: it has no mmproj"
