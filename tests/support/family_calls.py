"""The calls that the golden file of further Qwen families holds, and what they are made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jmm import preprocess, profiles
from support import gguf_writer, golden, qwen3, tiny
from support.sequences import Grid

MODEL = tiny.MODELS["qwen2_small"]
TEXT = "a red square in the middle, and what it means"
GRID: Grid = (4, 6)
QWEN3_GRIDS: tuple[Grid, ...] = ((2, 2), (4, 6), (10, 4), (14, 18))
COLQWEN25 = profiles.COLQWEN2_5.name
COLQWEN25_MODEL = tiny.MODELS["qwen25_small"]
COLQWEN25_GRID: Grid = (10, 14)  # several windows of the tower
COLQWEN_DIM = 24
GOLDEN = golden.FOLDER / "qwen_families.npz"
FAMILIES = {
    profile.name: profile
    for profile in (
        profiles.GME_QWEN2_VL,
        profiles.COLQWEN2,
        profiles.COLQWEN2_5,
        profiles.COLQWEN2_HF,
        profiles.QWEN3_VL_EMBEDDING,
    )
}


def model(family: str) -> tiny.TinyModel:
    """The tiny model that a family on Qwen2-VL or Qwen2.5-VL has here."""
    return COLQWEN25_MODEL if family == COLQWEN25 else MODEL


def colqwen_projector(family: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight ``[COLQWEN_DIM, hidden]`` and bias of a ColQwen's linear layer."""
    hidden = model(family).hidden
    shapes = (("proj.weight", (COLQWEN_DIM, hidden)), ("proj.bias", (COLQWEN_DIM,)))
    weight, bias = tiny.draw(shapes, 15 if family == COLQWEN25 else 12).values()
    return weight, bias


def write_projector(path: Path, family: str) -> Path:
    """`colqwen_projector` as a file."""
    weight, bias = colqwen_projector(family)
    tensors = {
        "multi_vector_projector.weight": (weight, "F32"),
        "multi_vector_projector.bias": (bias, "F32"),
    }
    return gguf_writer.write_projector(path, tensors)


def qwen3_pixels(grid: Grid, seed: int = 0) -> NDArray[np.uint8]:
    """A picture of ``grid`` patches of 16 pixels."""
    return tiny.pixels(qwen3.PATCH * grid[0], qwen3.PATCH * grid[1], seed)


def qwen3_patches(grid: Grid, seed: int = 0) -> NDArray[np.float32]:
    """Its patches, float32 ``[h * w, 1536]``."""
    return preprocess.patchify(
        qwen3_pixels(grid, seed),
        patch_size=qwen3.PATCH,
        image_mean=qwen3.MEAN,
        image_std=qwen3.STD,
    )


def grid(family: str) -> Grid:
    """Patches of the picture that a family is asked about."""
    return COLQWEN25_GRID if family == COLQWEN25 else GRID


def picture(family: str) -> NDArray[np.uint8]:
    """The picture that a family is asked about."""
    is_qwen3 = family == profiles.QWEN3_VL_EMBEDDING.name
    return qwen3_pixels(GRID) if is_qwen3 else tiny.picture(*grid(family))


def call(embedder: Any, name: str, **options: Any) -> Any:
    """Makes the call ``name`` of a golden file: the name of a task stands for its query."""
    pixels = picture(embedder.profile.name)
    if name == "picture":
        return embedder.encode_images(pixels, **options)
    if name == "document":
        return embedder.encode_document(TEXT, **options)
    if name == "mixed":
        return embedder.encode_document([[pixels, TEXT]], **options)[0]
    return embedder.encode_query(TEXT, task=None if name == "query" else name, **options)


def trace(embedder: Any, name: str) -> Any:
    """Traces the call ``name``."""
    pixels = picture(embedder.profile.name)
    if name == "picture":
        return embedder.trace(pixels)
    if name in ("document", "mixed"):
        return embedder.trace([pixels, TEXT] if name == "mixed" else TEXT, kind="document")
    return embedder.trace(TEXT, kind="query", task=None if name == "query" else name)
