"""Training batches, each a function of the seed and its number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demo_model import captions, dense, edits, pictures, vocabulary, world

MIX = {"shape": 0.22, "count": 0.15, "relation": 0.2, "layout": 0.06, "word": 0.25, "number": 0.12}
FULL = 0.4


@dataclass(frozen=True)
class Batch:
    """Pictures and captions, row by row.

    Attributes:
        pixels: uint8 [n, 84, 84, 3].
        ids: int64 [n, t], padded with 0 on the right.
        mask: float32 [n, t], 1 for tokens.
        picture_labels: int64 [n, n_attributes], all that the picture shows.
        text_labels: int64 [n, n_attributes], what the caption says.
        token_labels: int64 [n, n_kinds, 9] of `dense`.
        characters: int64 [n, 36] of `dense`.
        true: bool [n, n], whether caption i is true of picture j.
    """

    pixels: NDArray[np.uint8]
    ids: NDArray[np.int64]
    mask: NDArray[np.float32]
    picture_labels: NDArray[np.int64]
    text_labels: NDArray[np.int64]
    token_labels: NDArray[np.int64]
    characters: NDArray[np.int64]
    true: NDArray[np.bool_]


def pad(rows: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids and mask of texts of different lengths."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros(ids.shape, np.float32)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return ids, mask


def make(seed: int, step: int, size: int, twins: float, *, worker: int = 0) -> Batch:
    """Draws batch number ``step``.

    Args:
        seed: Of the whole training.
        step: Number of the batch.
        size: Pairs.
        twins: Chance that a scene is followed by one that differs in a single thing.
        worker: Number of the process that trains on it.
    """
    rng = np.random.default_rng((seed, 0, step, worker))
    scenes: list[world.Scene] = []
    while len(scenes) < size:
        scene = world.sample(rng, str(rng.choice(list(MIX), p=list(MIX.values()))), "train")
        scenes.append(scene)
        other = edits.twin(scene, rng, "train") if rng.random() < twins else None
        if other is not None and len(scenes) < size:
            scenes.append(other)
    texts = [captions.describe(scene, rng, full=bool(rng.random() < FULL)) for scene in scenes]
    drawn = [pictures.sketch(scene, rng) for scene in scenes]
    ids, mask = pad(vocabulary.encode([text.text for text in texts]))
    return Batch(
        pixels=np.stack([pixels for pixels, _ in drawn]),
        ids=ids,
        mask=mask,
        picture_labels=np.array([world.labels(s.kind, s.attributes) for s in scenes]),
        text_labels=np.array([world.labels(t.kind, t.says) for t in texts]),
        token_labels=np.stack(
            [
                dense.labels(scene, sketch.cells)
                for scene, (_, sketch) in zip(scenes, drawn, strict=True)
            ]
        ),
        characters=np.stack([dense.characters(at.characters) for _, at in drawn]),
        true=np.array([[text.is_true_of(scene) for scene in scenes] for text in texts]),
    )
