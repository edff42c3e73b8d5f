"""A drawing and its numbers as two files side by side, each whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.errors import InputError

if TYPE_CHECKING:
    from PIL import Image


def check(path: str | os.PathLike[str], *sources: str | os.PathLike[str]) -> Path:
    """Refuses what cannot be written, before anything is computed.

    Args:
        path: Of the drawing.
        sources: Files that are read, and must not be overwritten.

    Raises:
        InputError: It does not end in .png, its folder is missing or cannot be written, it is a
            folder, or one of the sources.
    """
    target = Path(path)
    written = {target.resolve(), target.with_suffix(".json").resolve()}
    if any(Path(source).resolve() in written for source in sources):
        raise InputError(f"{target}: this would overwrite what is read; give another name")
    folder = target.parent
    if target.suffix.lower() != ".png":
        raise InputError(f"{target}: the drawing is a PNG; a name that ends in .png is needed")
    if not folder.is_dir():
        raise InputError(f"{target}: there is no folder {folder}")
    if target.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{target}: it cannot be written")
    return target


def save(path: str | os.PathLike[str], drawing: Image.Image, record: dict[str, Any]) -> Path:
    """Writes the drawing, and its numbers beside it under the same name with .json.

    Raises:
        InputError: See `check`.
        OSError: Writing failed; older files are left as they were.

    Returns:
        The path of the numbers.
    """
    target = check(path)
    numbers = target.with_suffix(".json")
    with tempfile.TemporaryDirectory(prefix=".jmm-", dir=target.parent) as folder:
        drawn, written = Path(folder) / "drawing.png", Path(folder) / "numbers.json"
        drawing.save(drawn)
        written.write_text(json.dumps(record) + "\n", encoding="ascii")
        drawn.replace(target)
        written.replace(numbers)
    return numbers
