"""A folder that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from jmm.bundle import MANIFEST
from jmm.convert import json_file
from jmm.errors import InputError, JmmError
from jmm.replacing import beside, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ATTEMPTS = 100  # to put a folder in its place, beside others that do the same
_SPARE = 1 << 20  # for headers, vocabularies and jmm.json beside the weights: see `check_space`


def check_absent(out: Path, *, overwrite: bool) -> None:
    """Checks that ``out`` may be written.

    Raises:
        InputError: It exists and may not be replaced, or its parent is no folder.
    """
    if not os.path.isdir(out.parent):
        raise InputError(f"{out.parent}: there is no such folder")
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise InputError(f"{out} exists; pass overwrite=True (--overwrite) to replace it")
    _check_replaceable(out, out)


def _check_replaceable(found: Path, out: Path) -> None:
    """Raises InputError if a folder, found at ``out``, holds what `convert` has not written."""
    try:
        is_ours = not found.is_symlink() and (found / MANIFEST).is_file()
        names = {path.name for path in found.iterdir()} if is_ours else set()
    except OSError as error:
        raise InputError(f"{out} cannot be read: {error.strerror}") from None
    if not is_ours:
        raise InputError(f"{out} holds no {MANIFEST}: it is no converted model and is kept")
    foreign = sorted(names - _written(found))
    if foreign:
        raise InputError(
            f"{out} holds {', '.join(foreign)}, which its {MANIFEST} does not name and which would "
            "be lost; move it away"
        )


def _written(out: Path) -> set[str]:
    """Names of the files in a converted model's folder that `convert` has written."""
    found = json_file.read(out / MANIFEST)
    adapters = found.get("adapters")
    named = [found.get("model"), found.get("mmproj")]
    named += adapters.values() if isinstance(adapters, dict) else []
    return {MANIFEST, *(name for name in named if isinstance(name, str))}


def check_apart(out: Path, sources: Iterable[Path]) -> None:
    """Checks that replacing ``out`` removes none of the folders that are read.

    Raises:
        InputError: It is one of them, or holds one.
    """
    for source in sources:
        if Path(os.path.realpath(source)).is_relative_to(os.path.realpath(out)):
            raise InputError(f"{out} holds the checkpoint {source}; choose another folder")


def check_space(out: Path, n_bytes: int) -> None:
    """Checks that the disk has room.

    Raises:
        InputError: It has not.
    """
    try:
        free, needed = shutil.disk_usage(out.parent).free, n_bytes + _SPARE
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from None
    if free < needed:
        raise InputError(f"{out}: {needed:,} bytes are needed and {free:,} are free there")


@contextmanager
def folder(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a new folder beside ``out``, which takes its place at the end.

    After an error nothing of it is left, and what was at ``out`` is there still.

    Raises:
        InputError: ``out`` cannot be written, or has appeared meanwhile.
    """
    partial = beside(out.parent / f".{out.name}", ".partial")
    try:
        partial.mkdir()
        yield partial
        for path in (*partial.iterdir(), partial):
            sync(path)
        _place(partial, out, overwrite=overwrite)
    except JmmError:
        raise
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _place(partial: Path, out: Path, *, overwrite: bool) -> None:
    """Puts a whole folder in its place; another process may do the same at the same time."""
    if not overwrite:
        check_absent(out, overwrite=False)
    for attempt in count():
        replaced = beside(out.parent / f".{out.name}", ".replaced")
        if overwrite:
            with suppress(FileNotFoundError):
                os.rename(out, replaced)
        try:
            if replaced.exists() or replaced.is_symlink():
                _check_replaceable(replaced, out)
            os.rename(partial, out)
        except BaseException as error:
            with suppress(OSError):  # there is another by now
                os.rename(replaced, out)
            if overwrite and attempt < _ATTEMPTS and _is_race(error):
                continue
            raise
        finally:
            if out.exists():
                sync(out.parent)
                shutil.rmtree(replaced, ignore_errors=True)
        return


def _is_race(error: BaseException) -> bool:
    """Whether another process has put a folder there between two of our steps."""
    return isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST)
