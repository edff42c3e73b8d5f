"""A drawing and its numbers as two files side by side, each whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.errors import InputError
from jmm.replacing import replacing

if TYPE_CHECKING:
    from PIL import Image


def check(path: str | os.PathLike[str], *sources: str | os.PathLike[str]) -> Path:
    """Refuses what cannot be written, before anything is computed.

    Args:
        path: Of the drawing.
        sources: Files that are read, and must not be overwritten.

    Raises:
        InputError: It does not end in .png, its folder is missing or cannot be written, it is a
            folder, or one of the sources; or the same of the numbers' file; or that file is there
            without a drawing, so that it is something else.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"{target}: the drawing is a PNG; a name that ends in .png is needed")
    numbers = target.with_suffix(".json")
    drawn = {os.path.realpath(target), os.path.realpath(numbers)}
    if drawn & set(map(os.path.realpath, sources)):
        raise InputError(f"{target}: this would overwrite what is read; give another name")
    if not os.path.isdir(target.parent):
        raise InputError(f"{target}: there is no folder {target.parent}")
    for file in (target, numbers):
        real = os.path.realpath(file)
        folder = os.path.dirname(real)
        if (
            os.path.isdir(real)
            or os.path.islink(real)
            or not os.path.isdir(folder)
            or not os.access(folder, os.W_OK)
        ):
            raise InputError(f"{file}: it cannot be written")
    if os.path.exists(numbers) and not os.path.exists(target):
        raise InputError(
            f"{numbers}: the numbers would overwrite this file; move it, or give another name"
        )
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
    with replacing(numbers) as numbers_file, replacing(target) as drawing_file:
        drawing.save(drawing_file, "PNG")
        # a file's name may be any bytes; escaped, all of them are ASCII
        numbers_file.write(f"{json.dumps(record)}\n".encode("ascii"))
    return numbers
