"""Token sequences with pictures, and pooling over them, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from support.tiny import MERGE, TinyModel

Grid = tuple[int, int]

# The prompts of jina-embeddings-v4's processor.
IMAGE_PREFIX = "<|im_start|>user\n<|vision_start|>"
IMAGE_SUFFIX = "<|vision_end|>Describe the image.<|im_end|>\n"
QUERY_PREFIX = "Query: "
PASSAGE_PREFIX = "Passage: "


def n_merged(grid: Grid) -> int:
    """Tokens that a picture of ``grid`` (height, width in patches) takes."""
    return grid[0] * grid[1] // (MERGE * MERGE)


def grid_thw(grids: list[Grid]) -> NDArray[np.int64]:
    """int64 [n, 3] as transformers' processor returns it."""
    return np.array([(1, *grid) for grid in grids], dtype=np.int64).reshape(-1, 3)


def is_image(model: TinyModel, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which rows of a sequence are image rows."""
    return np.asarray(ids) == model.vocab.id("<|image_pad|>")


def vision_span(model: TinyModel, ids: NDArray[np.integer]) -> tuple[int, int]:
    """Rows from the first ``<|vision_start|>`` to the last ``<|vision_end|>``, stop exclusive."""
    (starts,) = np.nonzero(np.asarray(ids) == model.vocab.id("<|vision_start|>"))
    (ends,) = np.nonzero(np.asarray(ids) == model.vocab.id("<|vision_end|>"))
    return int(starts[0]), int(ends[-1]) + 1


def unit_mean(hidden: NDArray[np.floating], start: int = 0, stop: int | None = None) -> NDArray:
    """L2-normalised float32 mean of rows ``start:stop``, computed in double."""
    mean = np.asarray(hidden, dtype=np.float64)[start:stop].mean(0)
    return (mean / np.linalg.norm(mean)).astype(np.float32)


def relative_error(value: NDArray, reference: NDArray) -> float:
    """Norm of the difference over the norm of the reference."""
    exact = np.asarray(reference, dtype=np.float64)
    return float(
        np.linalg.norm(np.asarray(value, dtype=np.float64) - exact) / np.linalg.norm(exact)
    )


def worst_row_error(value: NDArray, reference: NDArray) -> float:
    """The largest `relative_error` of a row."""
    exact = np.asarray(reference, dtype=np.float64)
    difference = np.linalg.norm(np.asarray(value, dtype=np.float64) - exact, axis=-1)
    return float((difference / np.linalg.norm(exact, axis=-1)).max())


def cosine(a: NDArray, b: NDArray) -> float:
    """Cosine similarity of two vectors, in double."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
