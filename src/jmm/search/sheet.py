"""Search results as one picture."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont

from jmm.errors import InputError
from jmm.images import to_rgb
from jmm.search import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jmm.search.index import Hit

_COLUMNS = 5
_CELL = 260, 300
_LABEL_HEIGHT = 48
_MARGIN = 16
_HEAD_HEIGHTS = 44, 140  # of a text, of a picture
_FONT_SIZE = 16
_LINE_HEIGHT = 22
_LINE_CHARS = 30
_INK, _PALE, _PAPER = "#202020", "#ededed", "#ffffff"


def contact_sheet(query: Any, hits: Sequence[Hit], settings: page.Settings) -> Image.Image:
    """Draws a query and the pages that were found, with their ranks and scores.

    Args:
        query: What `Index.search` was asked.
        hits: What it gave. A page whose file is gone leaves a grey field.
        settings: `Index.settings`.

    Returns:
        A picture of mode RGB.

    Raises:
        InputError: The query is a picture that cannot be read.

    Example:
        >>> from jmm.search import Hit
        >>> hits = [Hit("notes.txt", ("notes.txt",), 1, "text", 0.5, 0.5, "Rain all night.")]
        >>> contact_sheet("weather", hits, page.Settings(2000, 602_112)).mode
        'RGB'
    """
    n_columns = max(2, min(_COLUMNS, len(hits)))
    step_x, step_y = _CELL[0] + _MARGIN, _CELL[1] + _LABEL_HEIGHT + _MARGIN
    head = _HEAD_HEIGHTS[not isinstance(query, str)]
    top = _MARGIN + head + _MARGIN
    n_rows = -(-len(hits) // n_columns)
    sheet = Image.new("RGB", (_MARGIN + n_columns * step_x, top + n_rows * step_y), _PAPER)
    _draw_query(sheet, query, head)
    for rank, hit in enumerate(hits):
        row, column = divmod(rank, n_columns)
        corner = _MARGIN + column * step_x, top + row * step_y
        _draw_hit(sheet, corner, rank + 1, hit, settings)
    return sheet


def _draw_query(sheet: Image.Image, query: Any, height: int) -> None:
    corner = _MARGIN, _MARGIN
    if isinstance(query, str):
        _write(sheet, corner, [f"Query: {query}"], sheet.width // 10, height)
        return
    picture = to_rgb(query).copy()
    picture.thumbnail((sheet.width // 2, height))
    sheet.paste(picture, corner)
    right = corner[0] + picture.width + _MARGIN
    _write(sheet, (right, _MARGIN), ["Query: this picture"], _LINE_CHARS, height)


def _draw_hit(
    sheet: Image.Image, corner: tuple[int, int], rank: int, hit: Hit, settings: page.Settings
) -> None:
    left, top = corner
    width, height = _CELL
    frame = left, top, left + width - 1, top + height - 1
    draw = ImageDraw.Draw(sheet)
    try:
        if hit.kind == "text":
            picture = None
        else:
            picture = page.picture(hit.path, hit.kind, hit.page - 1, settings).copy()
            picture.thumbnail(_CELL)
    except (InputError, OSError):
        draw.rectangle(frame, fill=_PALE)
        _write(sheet, (left + 8, top + 8), ["the file is gone or has changed"], _LINE_CHARS, height)
    else:
        if picture is None:
            draw.rectangle(frame, fill=_PAPER, outline=_PALE)
            _write(sheet, (left + 8, top + 8), hit.text.splitlines(), _LINE_CHARS, height - 16)
        else:
            place = left + (width - picture.width) // 2, top + (height - picture.height) // 2
            draw.rectangle(frame, fill=_PALE)
            sheet.paste(picture, place)
    name = os.path.basename(hit.path)
    if len(name) > _LINE_CHARS:
        name = f"{name[:14]}...{name[-13:]}"
    number = "" if hit.kind == "picture" else f"  p. {hit.page}"
    labels = [f"{rank}.  {hit.score:+.4f}{number}", name]
    _write(sheet, (left, top + height + 2), labels, _LINE_CHARS + 2, _LABEL_HEIGHT)


def _write(
    sheet: Image.Image, corner: tuple[int, int], lines: list[str], n_chars: int, height: int
) -> None:
    # a name of bytes that are no UTF-8 has characters that cannot be drawn
    shown = [line.encode("utf-8", "replace").decode() for line in lines]
    wrapped = [part for line in shown for part in textwrap.wrap(line, n_chars) or [""]]
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_FONT_SIZE)
    for number, line in enumerate(wrapped[: height // _LINE_HEIGHT]):
        place = corner[0], corner[1] + number * _LINE_HEIGHT
        draw.text(place, line, fill=_INK, font=font)
