"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    target = Path(real)
    part = target.parent / f".jmm-{uuid4().hex[:8]}.part"
    try:
        with part.open("xb") as file:
            yield file
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
