"""Heat maps, notes beneath a picture, and contact sheets, with Pillow alone."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from jmm.errors import InputError
from jmm.inspect.lettering import Font, lettering

if TYPE_CHECKING:
    import numpy.typing as npt

# A small page is enlarged by a whole number until its longer side has this many pixels.
LEAST_SIDE = 448
# The page is drawn so much paler, so that colours show on its dark parts too.
FADING = 0.5
# How much of the page the strongest cell hides.
OPACITY = 0.8
RED, BLUE = (220, 0, 0), (0, 60, 220)
INK, PAPER, FAINT, MARK = "black", "white", (120, 120, 120), (0, 130, 60)
TEXT_SIZE = 16
GAP = 12
MOST_LINES = 6  # of a note; the last is cut
BAR_WIDTH, BAR_HEIGHT = 320, 14


def resized(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture at the size that the model reads."""
    if picture.size == size:
        return picture
    return picture.resize(size, Image.Resampling.BICUBIC)


def heat(
    picture: Image.Image, values: npt.NDArray[np.floating], limit: float | None = None
) -> Image.Image:
    """Lays values over a picture, which becomes a pale grey: red above 0, blue below.

    Args:
        picture: RGB, a square of pixels per value.
        values: ``[h, w]``, finite.
        limit: Value that is drawn strongest; None for the greatest of the map.

    Returns:
        RGB, the picture's size times a whole number, so that a small one can be seen. A pixel
        of a cell of value v is ``grey + |v| / limit * OPACITY * (colour - grey)``.

    Example:
        >>> page = Image.new("RGB", (448, 28), "white")
        >>> drawn = heat(page, np.arange(16.0)[None])
        >>> drawn.getpixel((0, 0)), drawn.getpixel((447, 0))
        ((255, 255, 255), (227, 51, 51))
    """
    scale = -(-LEAST_SIDE // max(picture.size))
    limit = float(np.abs(values).max()) if limit is None else limit
    cell = picture.width // values.shape[1]
    grey = 255 - FADING * (255 - np.asarray(ImageOps.grayscale(picture), np.float64)[..., None])
    drawn = _mixed(grey, values.repeat(cell, 0).repeat(cell, 1), limit)
    return drawn.resize((drawn.width * scale, drawn.height * scale), Image.Resampling.NEAREST)


def _mixed(
    grey: npt.NDArray[np.float64], values: npt.NDArray[np.floating], limit: float
) -> Image.Image:
    strength = np.clip(np.abs(values) / limit, 0, 1) if limit > 0 else np.zeros(values.shape)
    colours = np.where(values[..., None] >= 0, RED, BLUE)
    mixed = grey + OPACITY * strength[..., None] * (colours - grey)
    return Image.fromarray(np.round(mixed).astype(np.uint8))


def scale_bar(limit: float, *, signed: bool) -> Image.Image:
    """What the colours of `heat` mean.

    Args:
        limit: Above 0; value that is drawn strongest.
        signed: Whether it reaches down to ``-limit`` rather than to 0.

    Example:
        >>> scale_bar(0.5, signed=True).width
        320
    """
    least = -limit if signed else 0.0
    values = np.linspace(least, limit, BAR_WIDTH)[None].repeat(BAR_HEIGHT, 0)
    bar = framed(_mixed(np.full((BAR_HEIGHT, BAR_WIDTH, 1), 255.0), values, limit))
    sheet = Image.new("RGB", (BAR_WIDTH, BAR_HEIGHT + TEXT_SIZE + 6), PAPER)
    sheet.paste(bar, (0, 0))
    canvas = ImageDraw.Draw(sheet)
    for share, value in ((0.0, least), (1.0, limit)):
        font, text = lettering(f"{value:.3g}", TEXT_SIZE)
        left = share * (BAR_WIDTH - font.getlength(text))
        canvas.text((left, BAR_HEIGHT + 2), text, INK, font)
    return sheet


def framed(picture: Image.Image) -> Image.Image:
    """With a line over its outermost pixels, which tells a white page from the paper."""
    result = picture.copy()
    edges = (0, 0, picture.width - 1, picture.height - 1)
    ImageDraw.Draw(result).rectangle(edges, outline=FAINT)
    return result


def with_notes(picture: Image.Image, notes: Sequence[str]) -> Image.Image:
    """A picture with lines of text beneath; it keeps its place at the top left."""
    lines = [line for note in notes for line in _wrapped(note, picture.width - GAP)]
    step = TEXT_SIZE + 6
    sheet = Image.new("RGB", (picture.width, picture.height + step * len(lines) + GAP), PAPER)
    sheet.paste(picture, (0, 0))
    canvas = ImageDraw.Draw(sheet)
    for index, (font, line) in enumerate(lines):
        canvas.text((GAP // 2, picture.height + GAP // 2 + step * index), line, INK, font)
    return sheet


def beside(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures side by side, at their tops."""
    width = sum(picture.width for picture in pictures) + GAP * (len(pictures) - 1)
    sheet = Image.new("RGB", (width, max(picture.height for picture in pictures)), PAPER)
    left = 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width + GAP
    return sheet


def above(upper: Image.Image, lower: Image.Image) -> Image.Image:
    """One picture above another, at their left edges."""
    size = max(upper.width, lower.width), upper.height + GAP + lower.height
    sheet = Image.new("RGB", size, PAPER)
    sheet.paste(upper, (0, 0))
    sheet.paste(lower, (0, upper.height + GAP))
    return sheet


@dataclass(frozen=True)
class SheetCell:
    """One picture of a contact sheet.

    Attributes:
        picture: Any size.
        caption: Written beneath.
        marked: Framed, in the colour of what is right.
    """

    picture: Image.Image
    caption: str
    marked: bool = False


@dataclass(frozen=True)
class SheetRow:
    """One line of a contact sheet: a title and the pictures beneath it."""

    title: str
    cells: Sequence[SheetCell]


def contact_sheet(rows: Sequence[SheetRow], side: int = 160) -> Image.Image:
    """Pictures in rows, each row under its title.

    Args:
        rows: With at least one picture among them.
        side: Pixels of the square that each picture is fitted into.

    Returns:
        RGB.

    Raises:
        InputError: There is no picture.

    Example:
        >>> cell = SheetCell(Image.new("RGB", (84, 84), "red"), "+0.91", marked=True)
        >>> contact_sheet([SheetRow("a red page", [cell, cell])]).size
        (356, 240)
    """
    step = TEXT_SIZE + 6
    height = step + side + step + GAP
    n_columns = max((len(row.cells) for row in rows), default=0)
    if n_columns == 0:
        raise InputError("there is no picture to draw")
    size = GAP + n_columns * (side + GAP), GAP + len(rows) * (height + GAP)
    sheet = Image.new("RGB", size, PAPER)
    canvas = ImageDraw.Draw(sheet)
    for index, row in enumerate(rows):
        top = GAP + index * (height + GAP)
        font, title = _shortened(row.title, size[0] - 2 * GAP)
        canvas.text((GAP, top), title, INK, font)
        for column, cell in enumerate(row.cells):
            left = GAP + column * (side + GAP)
            _paste(sheet, canvas, cell, (left, top + step), side)
            font, caption = _shortened(cell.caption, side)
            canvas.text((left, top + step + side + 4), caption, FAINT, font)
    return sheet


def _paste(
    sheet: Image.Image,
    canvas: ImageDraw.ImageDraw,
    cell: SheetCell,
    corner: tuple[int, int],
    side: int,
) -> None:
    fitted = ImageOps.contain(cell.picture.convert("RGB"), (side, side))
    left, top = corner
    sheet.paste(fitted, (left + (side - fitted.width) // 2, top + (side - fitted.height) // 2))
    box = (left - 1, top - 1, left + side, top + side)
    canvas.rectangle(box, outline=MARK if cell.marked else FAINT, width=4 if cell.marked else 1)


def _wrapped(note: str, width: float) -> Iterator[tuple[Font, str]]:
    font, text = lettering(note, TEXT_SIZE)
    words = text.split()
    for _ in range(MOST_LINES - 1):
        n_words = 1
        while n_words < len(words) and font.getlength(" ".join(words[: n_words + 1])) <= width:
            n_words += 1
        if n_words >= len(words):
            break
        yield font, _cut(" ".join(words[:n_words]), font, width)
        del words[:n_words]
    yield font, _cut(" ".join(words), font, width)


def _shortened(text: str, width: float) -> tuple[Font, str]:
    font, text = lettering(text, TEXT_SIZE)
    return font, _cut(text, font, width)


def _cut(text: str, font: Font, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    fits = bisect.bisect(range(len(text)), width, key=lambda n: font.getlength(f"{text[:n]}..."))
    return f"{text[: max(fits - 1, 0)]}..."
