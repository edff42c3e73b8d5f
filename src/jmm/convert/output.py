"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jmm.bundle import MANIFEST
from jmm.errors import InputError, JmmError
from jmm.replacing import beside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    if os.path.islink(out) or not os.path.isfile(out / MANIFEST):
        raise InputError(f"{out} holds no {MANIFEST}: it is no converted model and is kept")


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
        _place(partial, out, overwrite=overwrite)
    except JmmError:
        raise
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _place(partial: Path, out: Path, *, overwrite: bool) -> None:
    check_absent(out, overwrite=overwrite)  # another process may have made it meanwhile
    replaced = beside(out.parent / f".{out.name}", ".replaced")
    try:
        if overwrite:
            with suppress(FileNotFoundError):
                os.rename(out, replaced)
        os.rename(partial, out)
    except BaseException:
        if os.path.exists(replaced) and not os.path.exists(out):
            os.rename(replaced, out)
        raise
    finally:
        if os.path.exists(out):
            shutil.rmtree(replaced, ignore_errors=True)
