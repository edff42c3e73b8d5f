"""A font for captions, and what stands in for the characters that it lacks."""

from __future__ import annotations

import os
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from PIL import ImageFont

if TYPE_CHECKING:
    from collections.abc import Iterator

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"

# The first that has the whole text is taken; Pillow's own has little beyond ASCII.
FILES = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "FreeSans.ttf"),
    *("NotoSansCJK-Regular.ttc", "wqy-microhei.ttc", "DroidSansFallbackFull.ttf", "unifont.otf"),
)
_UNKNOWN = "?"
_NO_CHARACTER = "\U0010ffff"  # no font has it: drawn as what a font shows for the missing
# What the font check draws at; any size would do.
_CHECKED_SIZE = 16


def lettering(text: str, size: int) -> tuple[Font, str]:
    r"""A font, and a text of one line that it can draw.

    Args:
        text: Any; blanks are drawn as one space.
        size: Of the font, in pixels.

    Returns:
        The font that lacks fewest of the text's characters, and the text: for a character that
        it lacks its letter without accents, or "?".

    Example:
        >>> lettering("a red\ncircle", 16)[1]
        'a red circle'
    """
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    paths = _paths()
    path = min(paths, key=lambda path: sum(not _has(path, character) for character in set(text)))
    return _font(path, size), "".join(_drawable(path, character) for character in text)


def _drawable(path: str | None, character: str) -> str:
    if _has(path, character):
        return character
    kind = unicodedata.category(character)
    if kind in ("Mn", "Cf"):  # accents by themselves, joiners
        return ""
    parts = unicodedata.normalize("NFKD", character) if kind != "Cs" else ""
    base = [part for part in parts if unicodedata.category(part) != "Mn"]
    return "".join(base) if base and all(_has(path, part) for part in base) else _UNKNOWN


@lru_cache(maxsize=4096)
def _has(path: str | None, character: str) -> bool:
    if character == " ":
        return True
    if unicodedata.category(character) in ("Cc", "Cs"):
        return False
    if isinstance(_font(path, _CHECKED_SIZE), ImageFont.ImageFont):
        return character.isascii()
    drawn, missing = (_glyph(path, each) for each in (character, _NO_CHARACTER))
    return drawn != missing


def _glyph(path: str | None, character: str) -> tuple[tuple[int, int], bytes]:
    mask = _font(path, _CHECKED_SIZE).getmask(character)
    return mask.size, bytes(mask)


@lru_cache
def _font(path: str | None, size: int) -> Font:
    if path is not None:
        return ImageFont.truetype(path, size)
    try:
        return ImageFont.load_default(size)
    except ImportError:  # Pillow may lack FreeType: its smallest font needs none
        return ImageFont.load_default()


@lru_cache
def _paths() -> tuple[str | None, ...]:
    """Of `FILES` those that this machine has, in order; then None, Pillow's own."""
    found: dict[str, str] = {}
    for folder in _folders():
        for root, _, names in os.walk(folder):
            found |= {name: os.path.join(root, name) for name in names if name in FILES}
    return (*(found[name] for name in FILES if name in found and _opens(found[name])), None)


def _folders() -> Iterator[Path]:
    # where the XDG base directory specification has shared data
    for data in os.environ.get("XDG_DATA_DIRS", "/usr/local/share:/usr/share").split(":"):
        if data:
            yield Path(data, "fonts")
    yield Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share", "fonts")


def _opens(path: str) -> bool:
    try:
        _font(path, _CHECKED_SIZE)
    except (OSError, ImportError):
        return False
    return True
