"""What the demo model's pictures can show: scenes of a few attributes, and what is held out.

A scene is a kind and a value for each of the kind's attributes::

    >>> scene = sample(np.random.default_rng(0), "shape")
    >>> sorted(scene.attributes)
    ['background', 'colour', 'position', 'shape', 'size']

One combination in eight (of the attributes in `HELD_OUT_BY`) is never trained on.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Value: TypeAlias = "str | int"
Rng: TypeAlias = np.random.Generator
Split: TypeAlias = Literal["train", "test"]

COLOURS = {
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
INKS = tuple(name for name in COLOURS if name != "grey")
BACKGROUNDS = ("white", "black", "grey", "yellow", "blue", "green")
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "ring", "diamond")
SIZES = ("small", "medium", "large")
POSITIONS = (
    *("top left", "top", "top right"),
    *("left", "centre", "right"),
    *("bottom left", "bottom", "bottom right"),
)
COUNTS = (2, 3, 4, 5, 6)
AXES = ("horizontal", "vertical")
LAYOUTS = (
    *("horizontal stripes", "vertical stripes", "chequered squares", "a frame"),
    *("a left and a right half", "a top and a bottom half", "a grid of dots", "a diagonal band"),
)
# Swapping the colours of these shows the same; the first in the alphabet comes first.
SYMMETRIC_LAYOUTS = LAYOUTS[:3]
_WORDS = """
    apple bird boat bread bridge camera castle chair cloud coffee corn desk door duck eagle
    farm fish flower forest fox garden ghost glass guitar horse hotel house island jacket key
    king lamp lemon lion market milk moon mouse music night ocean paper piano pizza queen rain
    river road rocket sand school ship silver snow spoon sugar summer tiger train tree window
    winter wolf zebra
"""
WORDS = tuple(_WORDS.split())
DIGITS = tuple("0123456789")
SLOTS = 3

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "shape": ("colour", "background", "size", "shape", "position"),
    "count": ("colour", "background", "shape", "count"),
    "relation": ("axis", "colour", "shape", "colour2", "shape2", "background"),
    "layout": ("layout", "colour", "colour2"),
    "word": ("n_words", "word1", "word2", "word3", "colour", "background"),
    "number": ("n_digits", "digit1", "digit2", "digit3", "colour", "background"),
}
KINDS = tuple(ATTRIBUTES)
VALUES: dict[str, tuple[Value, ...]] = {
    "kind": KINDS,
    "colour": tuple(COLOURS),
    "colour2": tuple(COLOURS),
    "background": BACKGROUNDS,
    "size": SIZES,
    "shape": SHAPES,
    "shape2": SHAPES,
    "position": POSITIONS,
    "count": COUNTS,
    "axis": AXES,
    "layout": LAYOUTS,
    "n_words": (1, 2, 3),
    "n_digits": (1, 2, 3),
    **{f"word{i + 1}": WORDS for i in range(SLOTS)},
    **{f"digit{i + 1}": DIGITS for i in range(SLOTS)},
}
HELD_OUT_BY: dict[str, tuple[str, ...]] = {
    "shape": ("colour", "shape", "position"),
    "count": ("colour", "shape", "count"),
    "relation": ("axis", "colour", "shape", "colour2", "shape2"),
    "layout": ("layout", "colour", "colour2"),
    "word": ("word1", "word2", "word3"),
    "number": ("digit1", "digit2", "digit3"),
}
HELD_OUT_ONE_IN = 8
# Rec. 601 luma, out of 255.
READABLE_CONTRAST = 70
# The label of an attribute that a scene does not have; torch's cross-entropy skips it.
IGNORED = -100


@dataclass(frozen=True)
class Scene:
    """What a picture shows.

    Attributes:
        kind: One of `KINDS`.
        attributes: Value of each attribute; slots that are not filled are left out. In a
            relation the first object is the left or the upper one.
    """

    kind: str
    attributes: dict[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.attributes[name]

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted(self.attributes.items()))))

    def slots(self, name: Literal["word", "digit"]) -> list[str]:
        """The words or digits, in order."""
        return [str(self.attributes[f"{name}{i + 1}"]) for i in range(int(self[f"n_{name}s"]))]

    def changed(self, **values: Value) -> Scene:
        """A scene that differs in the given attributes."""
        return Scene(self.kind, {**self.attributes, **values})


def labels(kind: str, attributes: dict[str, Value]) -> list[int]:
    """Index of each value among `VALUES`, in their order; `IGNORED` for what is not given."""
    known = {"kind": kind, **attributes}
    return [
        values.index(known[name]) if name in known else IGNORED for name, values in VALUES.items()
    ]


def luma(colour: str) -> float:
    """Brightness of a colour, 0 to 255."""
    return float(np.dot(COLOURS[colour], (0.299, 0.587, 0.114)))


def is_possible(scene: Scene) -> bool:
    """Whether nothing in the scene hides something else."""
    at = scene.attributes
    background = at.get("background")
    if background in (at["colour"], at.get("colour2")):
        return False
    if scene.kind == "layout":
        alike = at["layout"] in SYMMETRIC_LAYOUTS and str(at["colour"]) > str(at["colour2"])
        return at["colour"] != at["colour2"] and not alike
    if scene.kind == "relation":
        return (at["colour"], at["shape"]) != (at["colour2"], at["shape2"])
    if scene.kind in ("word", "number"):
        contrast = abs(luma(str(at["colour"])) - luma(str(background)))
        words = [at[name] for name in at if name.startswith("word")]
        return contrast >= READABLE_CONTRAST and len(set(words)) == len(words)
    return True


def split_of(scene: Scene) -> Split:
    """Which split a scene belongs to, by a checksum of its held-out combination."""
    values = [scene.attributes.get(name) for name in HELD_OUT_BY[scene.kind]]
    if sum(value is not None for value in values) == 1:
        values += [scene["colour"], scene["background"]]
    key = f"{scene.kind}:{values}".encode()
    return "test" if zlib.crc32(key) % HELD_OUT_ONE_IN == 0 else "train"


def _draw(rng: Rng, name: str) -> Value:
    if name in ("colour", "colour2"):
        return INKS[rng.integers(len(INKS))]
    values = VALUES[name]
    return values[rng.integers(len(values))]


def sample(rng: Rng, kind: str, split: Split | None = None) -> Scene:
    """Draws a scene of a kind, of one split or of either."""
    while True:
        attributes = {name: _draw(rng, name) for name in ATTRIBUTES[kind]}
        for name in ("word", "digit"):
            for i in range(int(attributes.get(f"n_{name}s", SLOTS)), SLOTS):
                del attributes[f"{name}{i + 1}"]
        scene = Scene(kind, attributes)
        if is_possible(scene) and split in (None, split_of(scene)):
            return scene
