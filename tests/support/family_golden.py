"""Golden files of further families: what transformers computed in double, read without torch.

``tools/make_further_golden.py`` writes them. Weights are made again from the recorded shapes, and
their digest is checked.

Example:
    >>> cases = load("mamba").cases
    >>> cases["sentence"].pooled.shape
    (32,)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support import family, tiny
from support.family import FAMILIES
from support.golden import FOLDER, StaleGoldenError
from support.vision_family import VISION_FAMILIES


@dataclass(frozen=True)
class Case:
    """A text and its right results.

    Attributes:
        text: As the user gives it.
        ids: int32 [n], with the special tokens.
        hidden: float32 [n, dim].
        pooled: float32 [dim], of unit length.
    """

    text: str
    ids: NDArray[np.int32]
    hidden: NDArray[np.float32]
    pooled: NDArray[np.float32]


@dataclass(frozen=True)
class PictureCase:
    """A picture and its right results.

    Attributes:
        size: Height and width of ``tiny.pixels``.
        tiles: uint8 [n_tiles, side, side, 3], as transformers' processor cuts and resizes them.
        ids: int32 [n], of the whole sequence.
        vit: float32 [rows of all tiles, dim].
        hidden: float32 [n, dim].
        pooled: float32 [dim], unit mean over all rows.
        around: Texts before and after the picture.
    """

    size: tuple[int, int]
    tiles: NDArray[np.uint8]
    ids: NDArray[np.int32]
    vit: NDArray[np.float32]
    hidden: NDArray[np.float32]
    pooled: NDArray[np.float32]
    around: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Golden:
    """One file: the weights, made from their recorded shapes, and the cases by name."""

    weights: dict[str, family.Array]
    cases: dict[str, Case]
    pictures: dict[str, PictureCase]


def path(name: str) -> Path:
    """The golden file of a family."""
    return FOLDER / "families" / f"{name}.npz"


@lru_cache
def load(name: str) -> Golden:
    """Reads a golden file.

    Raises:
        StaleGoldenError: The seed makes other weights now.
    """
    with np.load(path(name)) as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(str(arrays["meta"]))
    weights = family.weights({**FAMILIES, **VISION_FAMILIES}[name], meta["shapes"])
    if tiny.sha256(weights) != meta["weights_sha256"]:
        raise StaleGoldenError(f"{name}: other weights; run tools/make_further_golden.py")
    parts = ("ids", "hidden", "pooled")
    cases = {
        key: Case(text, *(arrays[f"{key}/{part}"] for part in parts))
        for key, text in meta["texts"].items()
    }
    parts = ("tiles", "ids", "vit", "hidden", "pooled")
    pictures = {
        key: PictureCase(
            (height, width),
            *(arrays[f"{key}/{part}"] for part in parts),
            around=tuple(meta.get("around", {}).get(key, ("", ""))),
        )
        for key, (height, width) in meta["pictures"].items()
    }
    return Golden(weights, cases, pictures)
