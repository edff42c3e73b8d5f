"""Labels of single image tokens: what lies in each ninth of the picture, and in which role.

A pooled vector keeps what goes with what only if a token says it in one breath ("a figure, here";
"this word, in the second line"), which these labels teach directly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from demo_model.world import AXES, COLOURS, DIGITS, IGNORED, SHAPES, SLOTS, WORDS, Scene

N_CELLS = 9
# Number of classes beside "nothing", which is the last one.
SIZES = {
    "place": N_CELLS,
    "shape": 2 * len(SHAPES),
    "colour": 2 * len(COLOURS),
    "axis": len(AXES),
    "word": SLOTS * len(WORDS),
    "digit": SLOTS * len(DIGITS),
}
# Thirds of the picture that one, two or three lines or digits fill best.
THIRDS = {1: (1,), 2: (0, 2), 3: (0, 1, 2)}


CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def characters(rows: list[list[str]]) -> NDArray[np.int64]:
    """Index among `CHARACTERS` of what each patch shows; their number for none.

    Args:
        rows: ``characters`` of a `pictures.Sketch`.

    Returns:
        int64 [36], the four patches of an image token next to each other.
    """
    index = np.array([[CHARACTERS.index(c) if c else len(CHARACTERS) for c in row] for row in rows])
    return index.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3).ravel()


def labels(scene: Scene, cells: list[int]) -> NDArray[np.int64]:
    """Classes of the image tokens.

    Args:
        scene: The scene.
        cells: Where its figures lie, as `pictures.Sketch` remembers it.

    Returns:
        int64 [len(SIZES), 9], `IGNORED` for what the kind of scene does not have.
    """
    result = {name: np.full(N_CELLS, IGNORED) for name in SIZES}
    if scene.kind in ("shape", "count", "relation"):
        for name in ("place", "shape", "colour", "axis"):
            result[name][:] = SIZES[name]
        for i, cell in enumerate(cells):
            role = i if scene.kind == "relation" else 0
            suffix = "2" if role else ""
            result["place"][cell] = cell
            result["shape"][cell] = role * len(SHAPES) + SHAPES.index(str(scene[f"shape{suffix}"]))
            colour = list(COLOURS).index(str(scene[f"colour{suffix}"]))
            result["colour"][cell] = role * len(COLOURS) + colour
            if scene.kind == "relation":
                result["axis"][cell] = AXES.index(str(scene["axis"]))
    elif scene.kind == "word":
        result["word"][:] = SIZES["word"]
        words = scene.slots("word")
        for slot, (word, row) in enumerate(zip(words, THIRDS[len(words)], strict=True)):
            result["word"][3 * row : 3 * row + 3] = slot * len(WORDS) + WORDS.index(word)
    elif scene.kind == "number":
        result["digit"][:] = SIZES["digit"]
        digits = scene.slots("digit")
        for slot, (digit, column) in enumerate(zip(digits, THIRDS[len(digits)], strict=True)):
            result["digit"][3 + column] = slot * len(DIGITS) + DIGITS.index(digit)
    return np.stack(list(result.values()))
