"""What makes a folder an index: ``index.json``, which names the model, and the lock."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmm.errors import InputError
from jmm.search import failure
from jmm.search.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = 2
TABLES = ("files", "pages")

_NAME = "index.json"
_PART = "index.json.part"
_LOCK = "lock"


def read(folder: Path) -> Identity | None:
    """The model of an index; None where there is none yet.

    Raises:
        InputError: The index is of another version.
        StoreError: The record is damaged, or cannot be read.
    """
    with failure.told(folder):
        try:
            data = (folder / _NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        record = json.loads(data)
    except ValueError as error:
        raise failure.damaged(folder, f"{_NAME} is no JSON: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(
            f"{folder} is no index of this version of jmm; delete it, and index the files again, "
            "or use a new folder"
        )
    try:
        return Identity.from_json(record["model"])
    except (KeyError, TypeError, ValueError):
        raise failure.damaged(folder, f"{_NAME} lacks a part") from None


def write(folder: Path, identity: Identity) -> None:
    """Writes the record; with the lock alone."""
    part = folder / _PART
    with part.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "model": identity.to_json()}, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / _NAME)


def missing(folder: Path) -> failure.StoreError:
    """The error about tables without a record."""
    return failure.damaged(folder, f"there is no {_NAME}")


def make_folder(folder: Path) -> None:
    """Makes a new folder, or takes an empty one.

    Raises:
        InputError: It holds other things than an index whose making was interrupted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is no folder") from None
    own = {_NAME, _PART, _LOCK, *(f"{name}.lance" for name in TABLES)}
    strangers = sorted({path.name for path in folder.iterdir()} - own)
    if strangers:
        raise InputError(f"{folder} holds other things ({strangers[0]!r}); give a new folder")


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keeps other writers out; a process that ends, however it does, lets go.

    Raises:
        InputError: Another process writes, and is not waited for.
    """
    with failure.told(folder):
        file = (folder / _LOCK).open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise InputError(
                f"another process is writing into {folder}; wait for its end, and try again"
            ) from None
        yield
