"""Held-out measurements: gallery recall and the one-attribute tests. numpy alone.

>>> gallery = make_gallery(seed=1)
>>> recall(texts @ pictures.T, 1)
0.002
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demo_model import captions, edits, pictures, world
from demo_model.world import Scene

GALLERY = {"shape": 110, "count": 100, "relation": 110, "layout": 40, "word": 100, "number": 40}


@dataclass(frozen=True)
class Gallery:
    """Distinct held-out scenes, each with its full caption and its picture.

    Attributes:
        scenes: The scenes.
        texts: One caption each, true of that scene alone.
        pixels: uint8 [n, 84, 84, 3].
    """

    scenes: list[Scene]
    texts: list[str]
    pixels: NDArray[np.uint8]


@dataclass(frozen=True)
class Choice:
    """Pictures with a true caption and one in which a single thing differs.

    Attributes:
        right: The true captions.
        wrong: The same wording, one thing changed.
        pixels: uint8 [n, 84, 84, 3].
    """

    right: list[str]
    wrong: list[str]
    pixels: NDArray[np.uint8]


def make_gallery(seed: int, sizes: dict[str, int] | None = None) -> Gallery:
    """Draws a gallery of held-out combinations."""
    rng = np.random.default_rng((seed, 1))
    scenes: dict[Scene, None] = {}
    for kind, size in (sizes or GALLERY).items():
        wanted = len(scenes) + size
        while len(scenes) < wanted:
            scenes[world.sample(rng, kind, "test")] = None
    texts = [captions.describe(scene, rng, full=True).text for scene in scenes]
    pixels = np.stack([pictures.draw(scene, rng) for scene in scenes])
    return Gallery(list(scenes), texts, pixels)


def make_choice(name: str, seed: int, n: int) -> Choice:
    """Draws ``n`` held-out pictures for the one-attribute test ``name`` of `edits.EDITS`."""
    rng = np.random.default_rng((seed, 2, sorted(edits.EDITS).index(name)))
    right, wrong, pixels = [], [], []
    while len(right) < n:
        scene = world.sample(rng, edits.EDITS[name].kind, "test")
        changed = edits.edit(scene, name, rng) if edits.EDITS[name].applies(scene) else None
        if changed is None:
            continue
        wording = int(rng.integers(2**32))
        for scene_or_other, texts in ((scene, right), (changed, wrong)):
            words = np.random.default_rng(wording)
            texts.append(captions.describe(scene_or_other, words, full=True).text)
        pixels.append(pictures.draw(scene, rng))
    return Choice(right, wrong, np.stack(pixels))


def recall(scores: NDArray[np.floating], k: int) -> float:
    """Share of rows whose own column (the diagonal) is among the ``k`` best; ties count against.

    Args:
        scores: [n, n], queries by candidates.
        k: At least 1.
    """
    own = np.diagonal(scores)[:, None]
    return float(((scores >= own).sum(1) <= k).mean())


def recall_by_kind(
    scores: NDArray[np.floating], scenes: Sequence[Scene], k: int
) -> dict[str, float]:
    """`recall` of each kind's queries over all candidates."""
    own = np.diagonal(scores)[:, None]
    found = (scores >= own).sum(1) <= k
    kinds = np.array([scene.kind for scene in scenes])
    return {kind: float(found[kinds == kind].mean()) for kind in dict.fromkeys(kinds.tolist())}
