"""A drawing and its numbers as two files side by side, each whole or not there."""

from __future__ import annotations

import json
import os
import secrets
from io import BytesIO
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
            folder, or one of the sources; or the same of the numbers' file; or that file is there
            without a drawing, so that it is something else.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"{target}: the drawing is a PNG; a name that ends in .png is needed")
    numbers = target.with_suffix(".json")
    if {target.resolve(), numbers.resolve()} & {Path(source).resolve() for source in sources}:
        raise InputError(f"{target}: this would overwrite what is read; give another name")
    if not target.parent.is_dir():
        raise InputError(f"{target}: there is no folder {target.parent}")
    for file in (target, numbers):
        folder = file.resolve().parent
        if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise InputError(f"{file}: it cannot be written")
    if numbers.exists() and not target.exists():
        raise InputError(
            f"{numbers}: the numbers would overwrite this file; move it, or give another name"
        )
    return target


def save(path: str | os.PathLike[str], drawing: Image.Image, record: dict[str, Any]) -> Path:
    """Writes the drawing, and its numbers beside it under the same name with .json.

    A name that is a link stays one: the file that it leads to is replaced.

    Raises:
        InputError: See `check`.
        OSError: Writing failed; older files are left as they were.

    Returns:
        The path of the numbers.
    """
    target = check(path)
    numbers = target.with_suffix(".json")
    png = BytesIO()
    drawing.save(png, "PNG")
    contents = {target.resolve(): png.getvalue(), numbers.resolve(): _json(record)}
    parts = {file: file.with_name(f".jmm-{secrets.token_hex(8)}.part") for file in contents}
    try:
        for file, content in contents.items():
            parts[file].write_bytes(content)
        for file, part in parts.items():
            part.replace(file)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return numbers


def _json(record: dict[str, Any]) -> bytes:
    # a file's name may be any bytes; escaped, all of them are ASCII
    return f"{json.dumps(record)}\n".encode("ascii")
