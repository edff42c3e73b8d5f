"""One item in many settings: how far its unit vector moves.

Example:
    >>> still = alone(text, mmproj)
    >>> moved(still, text, mmproj, company=True, n_ubatch=7)
    1.5e-07
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jmm import Embedder
from support import tiny

Item = str | NDArray[np.uint8]
Vectors = NDArray[np.float32]

_SENTENCE = "the red square in a picture of 13 blue boats, and of the harbour at night"
_WORDS = _SENTENCE.split()
ITEMS: tuple[Item, ...] = (
    "a",
    "a red square",
    " ".join(_WORDS * 2),
    " ".join(_WORDS * 8),
    *(tiny.picture(*grid) for grid in ((4, 6), (16, 16), (20, 14), (2, 40), (28, 22))),
)
N_UBATCH = (1, 7, 64, 512, 2048)
N_BATCH = 16
N_OTHERS = 300


def others() -> list[Item]:
    """300 texts and pictures of mixed lengths."""
    rng = np.random.Generator(np.random.PCG64(7))
    lengths = rng.integers(1, 24, N_OTHERS)
    grids = rng.integers(1, 6, (N_OTHERS, 2)) * 2 + 2
    return [
        tiny.picture(*grid, seed=i) if i % 8 == 0 else " ".join(rng.choice(_WORDS, length))
        for i, (length, grid) in enumerate(zip(lengths, grids.tolist(), strict=True))
    ]


def embedder(text: Path, mmproj: Path, **settings: Any) -> Embedder:
    """Loads a model; one thread unless the settings say otherwise."""
    return Embedder(text, mmproj, profile="jina-embeddings-v4", **{"n_threads": 1} | settings)


def one_by_one(model: Embedder) -> Vectors:
    """Each item in a call of its own, float32 [n, dim]."""
    return np.stack([model.encode_document(item) for item in ITEMS])


def among_others(model: Embedder) -> Vectors:
    """All items spread among the others in one call."""
    crowd, places = others(), np.linspace(0, N_OTHERS, len(ITEMS)).astype(int)
    for i, (place, item) in enumerate(zip(places, ITEMS, strict=True)):
        crowd.insert(place + i, item)
    return model.encode_document(crowd)[places + np.arange(len(ITEMS))]


def alone(text: Path, mmproj: Path) -> Vectors:
    """What the other settings are compared with: one by one, default sizes, one thread."""
    with embedder(text, mmproj) as model:
        return one_by_one(model)


def moved(still: Vectors, text: Path, mmproj: Path, *, company: bool, **settings: Any) -> float:
    """The largest movement of a component of any item."""
    with embedder(text, mmproj, **settings) as model:
        vectors = among_others(model) if company else one_by_one(model)
    return float(np.abs(vectors - still).max())
