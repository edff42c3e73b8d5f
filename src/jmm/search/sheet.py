"""Search results as one picture."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from jmm.errors import InputError
from jmm.images import to_rgb
from jmm.inspect.lettering import lettering
from jmm.search import page
from jmm.search.source import MissingPageError, Sources, is_unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jmm.search.results import Hit

_COLUMNS = 5
_CELL = 260, 300
_LABEL_HEIGHT = 48
_MARGIN = 16
_HEAD_HEIGHTS = 44, 140  # of a text, of a picture
_FONT_SIZE = 16
_LINE_HEIGHT = 22
_LINE_CHARS = 30
_INK, _PALE, _PAPER = "#202020", "#ededed", "#ffffff"
_EDGE = "#b0b0b0"


def contact_sheet(query: Any, hits: Sequence[Hit], settings: page.Settings) -> Image.Image:
    """Draws a query and the pages that were found, with their ranks and scores.

    Args:
        query: What `Index.search` was asked.
        hits: What it gave. A page whose file is gone or has changed leaves a grey field.
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
    sources = Sources()
    for rank, hit in enumerate(hits):
        row, column = divmod(rank, n_columns)
        corner = _MARGIN + column * step_x, top + row * step_y
        picture = _picture(hit, sources, settings)
        _draw_hit(sheet, corner, rank + 1, hit, picture)
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


def _picture(hit: Hit, sources: Sources, settings: page.Settings) -> Image.Image | str | None:
    """The page as it was indexed, why it cannot be had, or None for a passage."""
    if hit.kind == "text":
        return None
    try:
        path, stamp = sources.find(hit.content, hit.paths)
        picture = page.picture(path, hit.kind, hit.page - 1, settings).copy()
        if not is_unchanged(path, stamp):
            raise MissingPageError("the file is being written to")
    except InputError as error:
        return error.message
    except OSError as error:
        return f"the file cannot be read ({error.strerror})"
    picture.thumbnail(_CELL)
    return picture


def _draw_hit(
    sheet: Image.Image,
    corner: tuple[int, int],
    rank: int,
    hit: Hit,
    picture: Image.Image | str | None,
) -> None:
    left, top = corner
    width, height = _CELL
    frame = left, top, left + width - 1, top + height - 1
    draw = ImageDraw.Draw(sheet)
    if picture is None:
        draw.rectangle(frame, fill=_PAPER, outline=_EDGE)
        _write(sheet, (left + 8, top + 8), hit.text.splitlines(), _LINE_CHARS, height - 16)
    else:
        draw.rectangle(frame, fill=_PALE, outline=_EDGE)
        if isinstance(picture, str):
            _write(sheet, (left + 8, top + 8), [picture], _LINE_CHARS, height)
        else:
            place = left + (width - picture.width) // 2, top + (height - picture.height) // 2
            sheet.paste(picture, place)
            right, bottom = place[0] + picture.width - 1, place[1] + picture.height - 1
            draw.rectangle((*place, right, bottom), outline=_EDGE)
    name = os.path.basename(hit.path)
    if len(name) > _LINE_CHARS:
        name = f"{name[:14]}...{name[-13:]}"
    number = {"picture": "", "pdf": f"  page {hit.page}", "text": f"  passage {hit.page}"}[hit.kind]
    labels = [f"{rank}.  {hit.score:+.4f}{number}", name]
    _write(sheet, (left, top + height + 2), labels, _LINE_CHARS + 2, _LABEL_HEIGHT)


def _write(
    sheet: Image.Image, corner: tuple[int, int], lines: list[str], n_chars: int, height: int
) -> None:
    wrapped = [part for line in lines for part in textwrap.wrap(line, n_chars) or [""]]
    draw = ImageDraw.Draw(sheet)
    for number, line in enumerate(wrapped[: height // _LINE_HEIGHT]):
        place = corner[0], corner[1] + number * _LINE_HEIGHT
        font, shown = lettering(line, _FONT_SIZE)
        draw.text(place, shown, fill=_INK, font=font)
