"""Scenes in pixels: 84 x 84 RGB, drawn at twice the size.

>>> draw(scene, np.random.default_rng(0)).shape
(84, 84, 3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from demo_model.world import AXES, COLOURS, POSITIONS, Rng, Scene

PIXELS = 84
N_PATCHES = 6
# Half the height of a capital, roughly, over the size of its font.
CAPITALS = 0.4
# What the drawing functions measure in; the canvas has SCALE pixels per unit.
SIDE = 112
OVERSAMPLING = 2
SCALE = PIXELS * OVERSAMPLING / SIDE
# Of Debian's fonts-dejavu-core, fonts-liberation, fonts-freefont-ttf and fonts-lato.
FONT_FILES = (
    *("DejaVuSans-Bold.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSansMono-Bold.ttf"),
    *("LiberationSans-Bold.ttf", "LiberationSerif-Bold.ttf", "LiberationMono-Bold.ttf"),
    *("FreeSansBold.ttf", "FreeSerifBold.ttf", "Lato-Heavy.ttf"),
)
FONT_FOLDER = Path("/usr/share/fonts/truetype")
RADIUS = {"small": 11, "medium": 18, "large": 28}
Point = tuple[float, float]
Font: TypeAlias = ImageFont.FreeTypeFont


def _colour(name: object, rng: Rng) -> tuple[int, int, int]:
    jitter = rng.integers(-10, 11, 3)
    red, green, blue = np.clip(np.array(COLOURS[str(name)]) + jitter, 0, 255).tolist()
    return red, green, blue


def _around(centre: Point, radius: float, corners: Sequence[Point]) -> list[Point]:
    return [
        ((centre[0] + radius * x) * SCALE, (centre[1] + radius * y) * SCALE) for x, y in corners
    ]


def _star() -> list[Point]:
    spokes = [(1.0 if i % 2 == 0 else 0.42, math.pi * (i / 5 - 0.5)) for i in range(10)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in spokes]


def _heart() -> list[Point]:
    turns = [2 * math.pi * i / 32 for i in range(32)]
    return [
        (
            math.sin(t) ** 3,
            -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16,
        )
        for t in turns
    ]


_ARM = 0.34
OUTLINES: dict[str, list[Point]] = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "triangle": [(0, -0.95), (1, 0.8), (-1, 0.8)],
    "diamond": [(0, -1), (0.72, 0), (0, 1), (-0.72, 0)],
    "star": _star(),
    "heart": _heart(),
    "cross": [
        *((-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM)),
        *((_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM)),
    ],
}


class Sketch:
    """A canvas that remembers where its figures are.

    Attributes:
        canvas: What is drawn on.
        cells: Of the figures in turn: the part of the picture that holds the centre, 0 to 8.
        characters: For each of the 6 x 6 patches the character under its middle, else "".
    """

    def __init__(self, image: Image.Image) -> None:
        self.canvas = ImageDraw.Draw(image)
        self.cells: list[int] = []
        self.characters = [[""] * N_PATCHES for _ in range(N_PATCHES)]

    def figure(self, shape: object, centre: Point, radius: float, ink: object) -> None:
        """Draws one of `world.SHAPES`."""
        column, row = (int(3 * value / SIDE) for value in centre)
        self.cells.append(3 * row + column)
        if shape in OUTLINES:
            self.canvas.polygon(_around(centre, radius, OUTLINES[str(shape)]), fill=ink)
            return
        box = _around(centre, radius, [(-1, -1), (1, 1)])
        if shape == "circle":
            self.canvas.ellipse(box, fill=ink)
        else:
            self.canvas.ellipse(box, outline=ink, width=max(2, round(radius * SCALE * 0.34)))

    def line(self, text: str, centre: Point, font: Font, ink: object) -> None:
        """Writes a line of text; ``centre`` is in pixels of the canvas."""
        self.canvas.text(centre, text, ink, font, anchor="mm")
        start = centre[0] - font.getlength(text) / 2
        ends = [start + font.getlength(text[: i + 1]) for i in range(len(text))]
        patch = PIXELS * OVERSAMPLING / N_PATCHES
        for row, column in np.ndindex(N_PATCHES, N_PATCHES):
            x, y = (column + 0.5) * patch, (row + 0.5) * patch
            if start <= x < ends[-1] and abs(y - centre[1]) < CAPITALS * font.size:
                self.characters[row][column] = text[int(np.searchsorted(ends, x, "right"))]


def _shape(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    radius = RADIUS[str(scene["size"])] * rng.uniform(0.92, 1.08)
    row, column = divmod(POSITIONS.index(str(scene["position"])), 3)
    edge = max(radius + 1, SIDE / 6)
    x, y = ((edge, SIDE / 2, SIDE - edge)[i] for i in (column, row))
    inwards = rng.uniform(-3, 3, 2)
    centre = tuple(np.clip(np.add((x, y), inwards), radius, SIDE - radius).tolist())
    sketch.figure(scene["shape"], centre, radius, _colour(scene["colour"], rng))


def _count(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    ink = _colour(scene["colour"], rng)
    for cell in rng.permutation(9)[: int(scene["count"])].tolist():
        radius = rng.uniform(11, 14)
        row, column = divmod(cell, 3)
        x, y = SIDE / 6 * np.array([2 * column + 1, 2 * row + 1]) + rng.uniform(-3, 3, 2)
        sketch.figure(scene["shape"], (float(x), float(y)), radius, ink)


def _relation(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    gap, middle = rng.uniform(23, 29), SIDE / 2 + rng.uniform(-4, 4)
    across = rng.uniform(26, SIDE - 26)
    for suffix, sign in (("", -1), ("2", 1)):
        along, aside = middle + sign * gap, across + rng.uniform(-5, 5)
        centre = (along, aside) if scene["axis"] == AXES[0] else (aside, along)
        ink = _colour(scene[f"colour{suffix}"], rng)
        sketch.figure(scene[f"shape{suffix}"], centre, rng.uniform(16, 21), ink)


def _layout(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    canvas = sketch.canvas
    ink, end = _colour(scene["colour"], rng), SIDE * SCALE
    canvas.rectangle((0, 0, end, end), fill=_colour(scene["colour2"], rng))
    name, step = scene["layout"], float(rng.uniform(12, 20)) * SCALE
    starts = np.arange(0, end, step).tolist()
    if name == "horizontal stripes":
        for y in starts[::2]:
            canvas.rectangle((0, y, end, y + step), fill=ink)
    elif name == "vertical stripes":
        for x in starts[::2]:
            canvas.rectangle((x, 0, x + step, end), fill=ink)
    elif name == "chequered squares":
        for i, x in enumerate(starts):
            for y in starts[i % 2 :: 2]:
                canvas.rectangle((x, y, x + step, y + step), fill=ink)
    elif name == "a frame":
        canvas.rectangle((0, 0, end, end), outline=ink, width=round(step))
    elif name == "a left and a right half":
        canvas.rectangle((0, 0, end * rng.uniform(0.45, 0.55), end), fill=ink)
    elif name == "a top and a bottom half":
        canvas.rectangle((0, 0, end, end * rng.uniform(0.45, 0.55)), fill=ink)
    elif name == "a grid of dots":
        for x in starts:
            for y in starts:
                canvas.ellipse((x, y, x + step * 0.6, y + step * 0.6), fill=ink)
    else:
        canvas.line((0, end, end, 0), fill=ink, width=round(step * 2))


@lru_cache
def fonts() -> tuple[str, ...]:
    """Paths of those of `FONT_FILES` that this machine has."""
    found = {path.name: str(path) for path in FONT_FOLDER.rglob("*.ttf")}
    return tuple(found[name] for name in FONT_FILES if name in found)


@lru_cache(maxsize=4096)
def _font(path: str | None, size: int) -> Font:
    return ImageFont.load_default(size) if path is None else ImageFont.truetype(path, size)


def _lines(sketch: Sketch, lines: list[str], ink: object, rng: Rng) -> None:
    choices = (*fonts(), None)
    path = choices[rng.integers(len(choices))]
    height = SIDE * SCALE / len(lines)
    for i, line in enumerate(lines):
        wanted = SIDE * SCALE * rng.uniform(0.80, 0.95)
        size = min(wanted * 50 / _font(path, 50).getlength(line), height * 0.8, 64.0 * SCALE)
        font = _font(path, max(2, round(size / 2) * 2))
        x = SIDE * SCALE / 2 + rng.uniform(-6, 6)
        sketch.line(line, (x, height * (i + 0.5) + rng.uniform(-6, 6)), font, ink)


def _word(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    words = [word.upper() for word in scene.slots("word")]
    _lines(sketch, words, _colour(scene["colour"], rng), rng)


def _number(sketch: Sketch, scene: Scene, rng: Rng) -> None:
    _lines(sketch, ["".join(scene.slots("digit"))], _colour(scene["colour"], rng), rng)


_PAINTERS = {
    "shape": _shape,
    "count": _count,
    "relation": _relation,
    "layout": _layout,
    "word": _word,
    "number": _number,
}


def draw(scene: Scene, rng: Rng) -> NDArray[np.uint8]:
    """Draws a scene; places, sizes, colours and fonts vary a little.

    Returns:
        uint8 [84, 84, 3].
    """
    return sketch(scene, rng)[0]


def sketch(scene: Scene, rng: Rng) -> tuple[NDArray[np.uint8], Sketch]:
    """As `draw`, with what is where."""
    background = _colour(scene.attributes.get("background", "white"), rng)
    image = Image.new("RGB", (PIXELS * OVERSAMPLING,) * 2, background)
    result = Sketch(image)
    _PAINTERS[scene.kind](result, scene, rng)
    return np.asarray(image.reduce(OVERSAMPLING)), result
