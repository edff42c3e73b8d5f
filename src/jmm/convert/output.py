"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from jmm.bundle import MANIFEST
from jmm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPARE = 1 << 20  # for headers, vocabularies and jmm.json beside the weights: see `check_space`


def check_absent(out: Path, *, overwrite: bool) -> None:
    """Checks that ``out`` may be written.

    Raises:
        InputError: It exists and may not be replaced, or its parent is no folder.
    """
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: there is no such folder")
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise InputError(f"{out} exists; pass overwrite=True (--overwrite) to replace it")
    if out.is_symlink() or not (out / MANIFEST).is_file():
        raise InputError(f"{out} holds no {MANIFEST}: it is no converted model and is kept")


def check_space(out: Path, n_bytes: int) -> None:
    """Checks that the disk has room.

    Raises:
        InputError: It has not.
    """
    free = shutil.disk_usage(out.parent).free
    if free < n_bytes + _SPARE:
        raise InputError(
            f"{out}: {n_bytes / 1e9:,.2f} GB are needed and {free / 1e9:,.2f} GB are free there"
        )


@contextmanager
def folder(out: Path) -> Iterator[Path]:
    """Yields a new folder beside ``out``, which takes its place at the end.

    After an error nothing of it is left, and what was at ``out`` is there still.
    """
    partial = out.parent / f".{out.name}.{uuid4().hex[:8]}.partial"
    partial.mkdir()
    try:
        yield partial
        replaced = None
        if out.exists():
            replaced = partial.with_suffix(".replaced")
            os.rename(out, replaced)
        os.rename(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if replaced is not None:
        shutil.rmtree(replaced)
