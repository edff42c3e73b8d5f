"""Held-out measurements: gallery recall and the one-attribute tests. numpy alone.

>>> gallery = make_gallery(seed=1)
>>> recall(texts @ pictures.T, 1)
0.002
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from demo_model import captions, edits, pictures, world
from demo_model.world import Scene

WIDTHS = (32, 64, 128)
GALLERY = {"shape": 110, "count": 100, "relation": 110, "layout": 40, "word": 100, "number": 40}


class Embedded(NamedTuple):
    """What a model gives for some items.

    Attributes:
        vectors: float32 [n, dim], of unit length.
        rows: Unit rows [t, 128] of each item, or None for a model without that head.
    """

    vectors: NDArray[np.float32]
    rows: list[NDArray[np.float32]] | None


@dataclass(frozen=True)
class Encoder:
    """A model under test.

    Attributes:
        texts: Embeds a list of str.
        pictures: Embeds uint8 [n, 84, 84, 3].
    """

    texts: Callable[[list[str]], Embedded]
    pictures: Callable[[NDArray[np.uint8]], Embedded]


def encoder_of(embedder: Any) -> Encoder:
    """A `jmm.Embedder` with token vectors as it is measured."""

    def embedded(encode: Callable[..., Any], items: list[Any]) -> Embedded:
        both = encode(items, multi_vector="both")
        return Embedded(both.pooled, list(both.tokens))

    return Encoder(
        lambda texts: embedded(embedder.encode_query, texts),
        lambda pixels: embedded(embedder.encode_images, list(pixels)),
    )


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


def late(text: NDArray[np.float32], picture: NDArray[np.float32]) -> float:
    """MaxSim of unit rows, averaged over the text's tokens."""
    return float((text @ picture.T).max(1).mean())


def cut(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The first components, of unit length again."""
    short = vectors[:, :width]
    return short / np.linalg.norm(short, axis=1, keepdims=True)


def _percent(share: float) -> float:
    return round(100 * float(share), 1)


def _late_scores(texts: Embedded, pictures: Embedded) -> NDArray[np.float64] | None:
    if texts.rows is None or pictures.rows is None:
        return None
    if len({len(rows) for rows in pictures.rows}) != 1:
        raise ValueError("the pictures have different numbers of rows; the gallery's are equal")
    every = np.stack(pictures.rows)
    return np.array([(every @ text.T).max(1).mean(-1) for text in texts.rows])


def measure_gallery(
    encoder: Encoder, seed: int, sizes: dict[str, int] | None = None
) -> dict[str, Any]:
    """Recall at 1 and 5 in per cent, text to picture, chance 0.2 and 1.

    Args:
        encoder: The model.
        seed: Of the gallery.
        sizes: Scenes of each kind; default is `GALLERY`.

    Returns:
        For single vectors, for each cut width, by kind, and for MaxSim (None without).
    """
    gallery = make_gallery(seed, sizes)
    texts, pictures = encoder.texts(gallery.texts), encoder.pictures(gallery.pixels)

    def both(scores: NDArray[np.floating]) -> list[float]:
        return [_percent(recall(scores, k)) for k in (1, 5)]

    scores = texts.vectors @ pictures.vectors.T
    multi = _late_scores(texts, pictures)
    return {
        "single": both(scores),
        "multi": None if multi is None else both(multi),
        "single_by_kind": {
            kind: _percent(share)
            for kind, share in recall_by_kind(scores, gallery.scenes, 1).items()
        },
        "widths": {
            width: both(cut(texts.vectors, width) @ cut(pictures.vectors, width).T)
            for width in WIDTHS
        },
    }


def measure_choice(encoder: Encoder, name: str, seed: int, n: int) -> list[float | None]:
    """How often the true caption scores higher, in per cent; chance 50.

    Returns:
        For single vectors, and for MaxSim (None without).
    """
    choice = make_choice(name, seed, n)
    pictures = encoder.pictures(choice.pixels)
    right, wrong = encoder.texts(choice.right), encoder.texts(choice.wrong)
    single = ((right.vectors - wrong.vectors) * pictures.vectors).sum(1) > 0
    if right.rows is None or wrong.rows is None or pictures.rows is None:
        return [_percent(single.mean()), None]
    multi = [
        late(a, picture) > late(b, picture)
        for a, b, picture in zip(right.rows, wrong.rows, pictures.rows, strict=True)
    ]
    return [_percent(single.mean()), _percent(np.mean(multi))]


def measure(encoder: Encoder, seed: int, n: int) -> dict[str, Any]:
    """All held-out measurements, with ``n`` pictures in each one-attribute test."""
    choices = {name: measure_choice(encoder, name, seed, n) for name in edits.EDITS}
    return {"gallery": measure_gallery(encoder, seed), "one_attribute": choices}
