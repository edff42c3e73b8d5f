"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_NAME = 255  # bytes, of most file systems


def sync(path: Path) -> None:
    """Makes what was written to a file, or the names in a folder, last through a power cut.

    Does nothing where the system or the file system cannot.
    """
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """Yields a new file, which takes the place of ``target`` at the end.

    After an error nothing of it is left, and what was there is there still. A name that is a link
    stays one: the file that it leads to is replaced.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(Path(folder, "a")) as file:
        ...         _ = file.write(b"whole")
        ...     Path(folder, "a").read_bytes()
        b'whole'
    """
    real = os.path.realpath(target)
    if os.path.islink(real):  # to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(target))
    part = beside(Path(real), ".part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(real)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(target)  # a full disk, for example
        raise


def beside(target: Path, ending: str) -> Path:
    """A name for what shall take the place of ``target``, beside it and no longer than allowed.

    Example:
        >>> beside(Path("models/a.gguf"), ".part").match("models/a.gguf.????????.part")
        True
        >>> len(beside(Path("n" * 255), ".part").name)
        255
    """
    end = f".{uuid4().hex[:8]}{ending}"
    start = os.fsencode(target.name)[: _LONGEST_NAME - len(end)].decode("utf-8", "ignore")
    return target.with_name(start + end)
