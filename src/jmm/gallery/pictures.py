"""The pictures: one of each thing that the built-in model is trained to tell apart.

84 x 84 pixels, drawn at twice the size by whole numbers and Pillow's own font alone, so that they
are the same everywhere with one Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont, features

from jmm.errors import MissingExtraError

SIDE = 84
_SCALE = 2
_COLOURS = {
    "red": (220, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (250, 220, 50),
    "green": (50, 160, 70),
    "blue": (50, 90, 220),
    "purple": (140, 60, 180),
    "pink": (245, 140, 190),
    "brown": (130, 80, 45),
    "black": (20, 20, 20),
    "white": (250, 250, 250),
    "grey": (150, 150, 150),
}
_RADII = {"small": 8, "medium": 13, "large": 21}
# Of nine places, the middle: (x, y) in thirds.
_PLACES = {
    "top left": (0, 0),
    "top": (1, 0),
    "top right": (2, 0),
    "left": (0, 1),
    "centre": (1, 1),
    "right": (2, 1),
    "bottom left": (0, 2),
    "bottom": (1, 2),
    "bottom right": (2, 2),
}
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_CELLS = ("top left", "bottom right", "top right", "bottom left", "centre", "top")

Canvas: TypeAlias = ImageDraw.ImageDraw
Paint: TypeAlias = Callable[[Canvas], None]
Point: TypeAlias = "tuple[float, float]"


@dataclass(frozen=True)
class Entry:
    """One picture.

    Attributes:
        caption: What it shows; no two pictures have the same.
        picture: RGB, 84 x 84 pixels.
    """

    caption: str
    picture: Image.Image


def _polygon(corners: Iterable[Point]) -> Callable[[Canvas, Point, float, str], None]:
    outline = list(corners)

    def paint(canvas: Canvas, centre: Point, radius: float, colour: str) -> None:
        points = [(centre[0] + radius * x, centre[1] + radius * y) for x, y in outline]
        canvas.polygon(points, fill=_COLOURS[colour])

    return paint


def _star() -> Iterable[Point]:
    for corner in range(10):
        angle, radius = math.pi * corner / 5, 0.42 if corner % 2 else 1.0
        yield radius * math.sin(angle), -radius * math.cos(angle)


def _heart() -> Iterable[Point]:
    for step in range(32):
        turn = 2 * math.pi * step / 32
        waves = 13 * math.cos(turn) - 5 * math.cos(2 * turn) - 2 * math.cos(3 * turn)
        yield math.sin(turn) ** 3, -(waves - math.cos(4 * turn)) / 16


def _round(canvas: Canvas, centre: Point, radius: float, colour: str) -> None:
    canvas.ellipse(_box(centre, radius), fill=_COLOURS[colour])


def _ring(canvas: Canvas, centre: Point, radius: float, colour: str) -> None:
    canvas.ellipse(_box(centre, radius), outline=_COLOURS[colour], width=round(radius / 3))


def _box(centre: Point, radius: float) -> tuple[float, float, float, float]:
    return centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius


def _cross() -> Iterable[Point]:
    arm = 1 / 3
    quarter = [(arm, -1.0), (arm, -arm), (1.0, -arm)]
    for _ in range(4):
        yield from quarter
        quarter = [(-y, x) for x, y in quarter]


_FIGURES: dict[str, Callable[[Canvas, Point, float, str], None]] = {
    "circle": _round,
    "ring": _ring,
    "square": _polygon([(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
    "triangle": _polygon([(0, -0.95), (1, 0.8), (-1, 0.8)]),
    "diamond": _polygon([(0, -1), (0.72, 0), (0, 1), (-0.72, 0)]),
    "star": _polygon(_star()),
    "heart": _polygon(_heart()),
    "cross": _polygon(_cross()),
}


def _draw(background: str, *paints: Paint) -> Image.Image:
    picture = Image.new("RGB", (SIDE * _SCALE, SIDE * _SCALE), _COLOURS[background])
    canvas = ImageDraw.Draw(picture)
    for paint in paints:
        paint(canvas)
    return picture.reduce(_SCALE)


def _at(place: str, radius: float = 0) -> Point:
    edge = max(radius + 1, SIDE / 6)
    x, y = ((edge, SIDE / 2, SIDE - edge)[third] for third in _PLACES[place])
    return x * _SCALE, y * _SCALE


def _figure(shape: str, centre: Point, radius: float, colour: str) -> Paint:
    return lambda canvas: _FIGURES[shape](canvas, centre, radius * _SCALE, colour)


def _shape(size: str, colour: str, shape: str, place: str, background: str) -> Entry:
    figure = _figure(shape, _at(place, _RADII[size]), _RADII[size], colour)
    caption = f"a {size} {colour} {shape} at the {place} on a {background} background"
    return Entry(caption, _draw(background, figure))


def _count(number: str, colour: str, shape: str, background: str) -> Entry:
    places = _CELLS[: _NUMBERS[number]]
    figures = [_figure(shape, _at(place), 9, colour) for place in places]
    plural = f"{shape}es" if shape.endswith("s") else f"{shape}s"
    return Entry(f"{number} {colour} {plural} on {background}", _draw(background, *figures))


def _relation(first: str, where: str, second: str, background: str) -> Entry:
    places = ("left", "right") if where == "left of" else ("top", "bottom")
    figures = []
    for thing, place in zip((first, second), places, strict=True):
        colour, shape = thing.split()
        figures.append(_figure(shape, _at(place, 21), 14, colour))
    things = [f"an {thing}" if thing[0] == "o" else f"a {thing}" for thing in (first, second)]
    caption = f"{things[0]} {where} {things[1]} on {background}"
    return Entry(caption, _draw(background, *figures))


def _stripes(direction: str, first: str, second: str) -> Entry:
    step, end = SIDE * _SCALE // 6, SIDE * _SCALE

    def paint(canvas: Canvas) -> None:
        for start in range(0, end, 2 * step):
            across, along = (start, start + step - 1), (0, end)
            x, y = (along, across) if direction == "horizontal" else (across, along)
            canvas.rectangle((x[0], y[0], x[1], y[1]), fill=_COLOURS[first])

    return Entry(f"{first} and {second} {direction} stripes", _draw(second, paint))


def _half(first: str, second: str) -> Entry:
    end = SIDE * _SCALE

    def paint(canvas: Canvas) -> None:
        canvas.rectangle((0, 0, end // 2 - 1, end), fill=_COLOURS[first])

    return Entry(f"a left {first} half and a right {second} half", _draw(second, paint))


def _frame(colour: str, inside: str) -> Entry:
    end = SIDE * _SCALE - 1

    def paint(canvas: Canvas) -> None:
        canvas.rectangle((0, 0, end, end), outline=_COLOURS[colour], width=11 * _SCALE)

    return Entry(f"a frame in {colour} on {inside}", _draw(inside, paint))


def _text(kind: str, text: str, colour: str, background: str) -> Entry:
    end = SIDE * _SCALE
    shown = text.upper()
    size = min(48 * _SCALE, 0.88 * end * 50 / ImageFont.load_default(50).getlength(shown))
    font = ImageFont.load_default(round(size))

    def paint(canvas: Canvas) -> None:
        canvas.text((end / 2, end / 2), shown, _COLOURS[colour], font, anchor="mm")

    caption = f"the {kind} {text} in {colour} on a {background} background"
    return Entry(caption, _draw(background, paint))


def pictures() -> list[Entry]:
    """Draws all pictures.

    Returns:
        36 entries, in a fixed order, no two alike.

    Raises:
        MissingExtraError: Pillow was built without FreeType, which draws the words.

    Example:
        >>> entry = pictures()[0]
        >>> entry.caption, entry.picture.size
        ('a large red circle at the centre on a white background', (84, 84))
    """
    if not features.check("freetype2"):
        raise MissingExtraError("the words need a Pillow with FreeType; its wheels have it")
    return [
        _shape("large", "red", "circle", "centre", "white"),
        _shape("small", "red", "circle", "top left", "white"),
        _shape("small", "blue", "circle", "top left", "white"),
        _shape("large", "blue", "star", "centre", "yellow"),
        _shape("medium", "yellow", "star", "top right", "black"),
        _shape("medium", "yellow", "star", "bottom left", "black"),
        _shape("large", "green", "triangle", "centre", "white"),
        _shape("medium", "green", "square", "right", "grey"),
        _shape("medium", "pink", "heart", "bottom", "white"),
        _shape("large", "purple", "heart", "centre", "yellow"),
        _shape("medium", "orange", "diamond", "left", "blue"),
        _shape("large", "black", "cross", "centre", "green"),
        _shape("medium", "brown", "ring", "top", "white"),
        _count("two", "blue", "square", "white"),
        _count("three", "blue", "square", "white"),
        _count("five", "blue", "square", "white"),
        _count("four", "red", "heart", "yellow"),
        _count("six", "white", "star", "black"),
        _count("three", "green", "cross", "grey"),
        _relation("red square", "left of", "blue circle", "white"),
        _relation("blue circle", "left of", "red square", "white"),
        _relation("green star", "above", "orange ring", "white"),
        _relation("yellow heart", "above", "purple square", "black"),
        _stripes("horizontal", "black", "white"),
        _stripes("vertical", "black", "white"),
        _stripes("horizontal", "blue", "yellow"),
        _half("green", "pink"),
        _frame("red", "white"),
        _text("word", "tiger", "black", "white"),
        _text("word", "piano", "black", "white"),
        _text("word", "island", "blue", "yellow"),
        _text("word", "coffee", "white", "black"),
        _text("number", "7", "red", "white"),
        _text("number", "42", "black", "yellow"),
        _text("number", "365", "white", "blue"),
        _text("number", "90", "black", "white"),
    ]


# Each is true of one picture alone, given by its place.
QUERIES: dict[str, int] = {
    "a large red circle": 0,
    "a yellow star at the bottom left": 5,
    "a green triangle": 6,
    "five blue squares": 15,
    "six white stars on a black background": 17,
    "a blue circle left of a red square": 20,
    "vertical stripes, black and white": 24,
    "the word tiger": 28,
    "the number 42": 33,
}
