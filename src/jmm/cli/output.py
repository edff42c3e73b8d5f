"""What commands print: JSON, counts, failures; and where they may write."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.errors import InputError

if TYPE_CHECKING:
    import argparse

_WIDTH = 100
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def prepare_streams() -> None:
    """Has nothing that is printed fail: a file's name may be any bytes, a terminal ASCII."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("jmm", _byte_or_escape)
        sys.stdout.reconfigure(errors="jmm")
    if sys.stderr is None:  # closed by who started the program
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _byte_or_escape(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    code = ord(error.object[error.start])
    if 0xDC80 <= code <= 0xDCFF:
        return bytes([code - 0xDC00]), error.start + 1
    form = r"\x{:02x}" if code <= 0xFF else r"\u{:04x}" if code <= 0xFFFF else r"\U{:08x}"
    return form.format(code), error.start + 1


def drop_stdout() -> None:
    """Lets what could not be printed go, so that the end of the process tries no more."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def plain(text: object) -> str:
    r"""A text for the terminal: control characters, which could command it, as ``\x1b``."""
    return _CONTROL.sub(lambda match: rf"\x{ord(match[0]):02x}", str(text))


def print_json(arguments: argparse.Namespace, record: Any) -> None:
    r"""Prints one line of JSON; a byte of a name that is no UTF-8 shows as ``\xff``."""
    print(json.dumps(_shown(record)), flush=True)
    arguments.has_answered = True


def print_failure(arguments: argparse.Namespace, message: str) -> None:
    """Says on stderr what went wrong, and in JSON where that is wanted and is not there yet."""
    shown = "\n".join(map(plain, message.split("\n")))
    print(f"jmm: {shown}", file=sys.stderr)
    if getattr(arguments, "json", False) and not getattr(arguments, "has_answered", False):
        print_json(arguments, {"error": message})


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(_escaped, value)
    if isinstance(value, dict):
        return {_shown(key): _shown(part) for key, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list | tuple) else value


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return rf"\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else rf"\u{code:04x}"


def row(head: str, words: str) -> str:
    """A name and what belongs to it, in as many lines as that takes."""
    if len(head + words) <= _WIDTH:
        return head + words
    return textwrap.fill(
        head + words,
        _WIDTH,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def counted(n: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "file"), counted(1500, "page")
        ('1 file', '1,500 pages')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def check(target: Path, *sources: str | os.PathLike[str] | None) -> None:
    """Refuses what cannot be written, before anything is computed.

    Args:
        target: The file to write.
        sources: Files that are read, and must not be overwritten.

    Raises:
        InputError: Its folder is missing or cannot be written, it is no regular file, or it is
            one of the sources.
    """
    if not os.path.isdir(target.parent):
        raise InputError(f"{target}: there is no folder {target.parent}")
    real = os.path.realpath(target)
    if (os.path.exists(real) and not os.path.isfile(real)) or os.path.islink(real):
        raise InputError(f"{target}: it is no file that can be replaced")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{target}: its folder cannot be written into")
    if any(source is not None and real == os.path.realpath(source) for source in sources):
        raise InputError(f"{target}: this would overwrite what is read; give another name")
