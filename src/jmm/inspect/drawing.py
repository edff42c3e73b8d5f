"""Heat maps, notes beneath a picture, and contact sheets, with Pillow alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

if TYPE_CHECKING:
    import numpy.typing as npt

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Pixels per side of a token: patch_size * merge_size of Qwen's vision towers.
CELL = 28
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


def resized(picture: Image.Image, grid: tuple[int, int]) -> Image.Image:
    """A picture at the size that the model reads: 28 pixels per cell of the grid."""
    size = grid[1] * CELL, grid[0] * CELL
    if picture.size == size:
        return picture
    return picture.resize(size, Image.Resampling.BICUBIC)


def heat(
    picture: Image.Image, values: npt.NDArray[np.floating], limit: float | None = None
) -> Image.Image:
    """Lays values over a picture, which becomes a pale grey: red above 0, blue below.

    Args:
        picture: RGB, `CELL` pixels per value.
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
    strength = np.clip(np.abs(values) / limit, 0, 1) if limit > 0 else np.zeros(values.shape)
    weights = OPACITY * strength.repeat(CELL, 0).repeat(CELL, 1)[..., None]
    grey = 255 - FADING * (255 - np.asarray(ImageOps.grayscale(picture), np.float64)[..., None])
    above = (values >= 0).repeat(CELL, 0).repeat(CELL, 1)[..., None]
    mixed = grey + weights * (np.where(above, RED, BLUE) - grey)
    drawn = Image.fromarray(np.round(mixed).astype(np.uint8))
    return drawn.resize((drawn.width * scale, drawn.height * scale), Image.Resampling.NEAREST)


def with_notes(picture: Image.Image, notes: Sequence[str]) -> Image.Image:
    """A picture with lines of text beneath; it keeps its place at the top left."""
    font = ImageFont.load_default(TEXT_SIZE)
    lines = [line for note in notes for line in _wrapped(note, font, picture.width - GAP)]
    step = TEXT_SIZE + 6
    sheet = Image.new("RGB", (picture.width, picture.height + step * len(lines) + GAP), PAPER)
    sheet.paste(picture, (0, 0))
    canvas = ImageDraw.Draw(sheet)
    for index, line in enumerate(lines):
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
        rows: At least one, with at least one picture among them.
        side: Pixels of the square that each picture is fitted into.

    Returns:
        RGB.

    Example:
        >>> cell = SheetCell(Image.new("RGB", (84, 84), "red"), "+0.91", marked=True)
        >>> contact_sheet([SheetRow("a red page", [cell, cell])]).size
        (356, 240)
    """
    font = ImageFont.load_default(TEXT_SIZE)
    step = TEXT_SIZE + 6
    height = step + side + step + GAP
    n_columns = max(len(row.cells) for row in rows)
    size = GAP + n_columns * (side + GAP), GAP + len(rows) * (height + GAP)
    sheet = Image.new("RGB", size, PAPER)
    canvas = ImageDraw.Draw(sheet)
    for index, row in enumerate(rows):
        top = GAP + index * (height + GAP)
        canvas.text((GAP, top), _shortened(row.title, font, size[0] - 2 * GAP), INK, font)
        for column, cell in enumerate(row.cells):
            left = GAP + column * (side + GAP)
            _paste(sheet, canvas, cell, (left, top + step), side)
            caption = _shortened(cell.caption, font, side)
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


def _wrapped(text: str, font: Font, width: float) -> Iterator[str]:
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and font.getlength(longer) > width:
            yield _shortened(line, font, width)
            line = word
        else:
            line = longer
    yield _shortened(line, font, width)


def _shortened(text: str, font: Font, width: float) -> str:
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."
