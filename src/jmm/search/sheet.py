"""Search results as one picture."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from jmm.errors import InputError
from jmm.images import to_rgb
from jmm.inspect.lettering import Font, lettering
from jmm.search import page
from jmm.search.source import MissingPageError, Sources, is_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jmm.search.results import Hit

_COLUMNS = 5
_CELL = 260, 300
_LABEL_HEIGHT = 48
_MARGIN = 16
_HEAD_HEIGHTS = 44, 140  # of a text, of a picture
_FONT_SIZE = 16
_LINE_HEIGHT = 22
_NAME_CHARS = 30
_INSET = 8
# More never fit into a line.
_MOST_CHARS = 1000
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
        _write(sheet, corner, [f"Query: {query}"], sheet.width - 2 * _MARGIN, height)
        return
    picture = to_rgb(query).copy()
    picture.thumbnail((sheet.width // 2, height))
    sheet.paste(picture, corner)
    right = corner[0] + picture.width + _MARGIN
    _write(sheet, (right, _MARGIN), ["Query: this picture"], sheet.width - right, height)


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
    inside = left + _INSET, top + _INSET
    draw = ImageDraw.Draw(sheet)
    if picture is None:
        draw.rectangle(frame, fill=_PAPER, outline=_EDGE)
        _write(sheet, inside, hit.text.splitlines(), width - 2 * _INSET, height - 2 * _INSET)
    else:
        draw.rectangle(frame, fill=_PALE, outline=_EDGE)
        if isinstance(picture, str):
            _write(sheet, inside, [picture], width - 2 * _INSET, height - 2 * _INSET)
        else:
            place = left + (width - picture.width) // 2, top + (height - picture.height) // 2
            sheet.paste(picture, place)
            right, bottom = place[0] + picture.width - 1, place[1] + picture.height - 1
            draw.rectangle((*place, right, bottom), outline=_EDGE)
    name = os.path.basename(hit.path)
    if len(name) > _NAME_CHARS:
        name = f"{name[:14]}...{name[-13:]}"
    number = {"picture": "", "pdf": f"  page {hit.page}", "text": f"  passage {hit.page}"}[hit.kind]
    labels = [f"{rank}.  {hit.score:+.4f}{number}", name]
    _write(sheet, (left, top + height + 2), labels, width, _LABEL_HEIGHT)


def _write(
    sheet: Image.Image, corner: tuple[int, int], texts: list[str], width: int, height: int
) -> None:
    lines = (line for text in texts for line in _lines(text, width))
    draw = ImageDraw.Draw(sheet)
    for number, (font, line) in enumerate(islice(lines, height // _LINE_HEIGHT)):
        draw.text((corner[0], corner[1] + number * _LINE_HEIGHT), line, fill=_INK, font=font)


def _lines(text: str, width: int) -> Iterator[tuple[Font, str]]:
    """Cuts a text between its words, and within a word that is too long, at a width in pixels."""
    font, text = lettering(text, _FONT_SIZE)
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if font.getlength(longer) <= width:
            line = longer
            continue
        if line:
            yield font, line
        line = word
        while (n := _fitting(font, line, width)) < len(line):
            yield font, line[:n]
            line = line[n:]
    yield font, line


def _fitting(font: Font, word: str, width: int) -> int:
    """How many letters fit; at least one."""
    fits, too_many = 1, min(len(word), _MOST_CHARS) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if font.getlength(word[:middle]) <= width:
            fits = middle
        else:
            too_many = middle
    return fits
