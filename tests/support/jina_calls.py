"""What is asked of a tiny jina-embeddings-v4, and the golden file with the right answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support import golden, tiny
from support.sequences import Grid

GOLDEN = golden.FOLDER / "jina_v4.npz"
MODEL = "qwen25_small"
TEXT = "Wie hoch war der Umsatz in 2024? ünï → <|vision_start|>"
GRID: Grid = (10, 18)

ENCODE: dict[str, Callable[..., Any]] = {
    "query": lambda embedder, **options: embedder.encode_query(TEXT, **options),
    "document": lambda embedder, **options: embedder.encode_document(TEXT, **options),
    "picture": lambda embedder, **options: embedder.encode_patches(
        tiny.patches(tiny.picture(*GRID)), [1, *GRID], **options
    ),
}


def load(path: Path = GOLDEN) -> dict[tuple[str, str, bool], NDArray[np.float32]]:
    """``{(task, call, multi_vector): right}`` of `MODEL`, an F32 checkpoint."""
    with np.load(path) as arrays:
        return {
            (task, call, kind == "tokens"): values
            for name, values in arrays.items()
            for task, call, kind in [name.split("/")]
        }
