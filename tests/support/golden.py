"""Golden files: what transformers computed, read without torch.

Values are transformers' in double precision, rounded to float32; ``distances["float32"]``
says how far transformers' own float32 run is from them. ``tools/make_golden.py`` writes
the files. Weights and pictures are made again from their seeds, and their digests checked.

Example:
    >>> case = load("qwen25_small")["4x6"]
    >>> case.vit.shape, case.pooled.shape
    ((6, 64), (64,))
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support import tiny
from support.sequences import Grid

FOLDER = Path(__file__).parent.parent / "golden"
REMEDY = "numpy's generator or tiny.py has changed: run tools/make_golden.py"


class StaleGoldenError(Exception):
    """A golden file does not belong to what the seeds make now."""


@dataclass(frozen=True)
class Case:
    """One sequence and its right results.

    Attributes:
        key: Name of the case.
        kind: ``text``, ``image`` (jina-embeddings-v4's picture prompt), ``resized`` (the
            same, from a picture that the processor resizes) or ``mixed``.
        text: The whole text of a text case, prefix included, else None.
        prefix: The part of ``text`` that the profile adds.
        parts: The strings and grids of a mixed case, in order.
        ids: int32 [n]; image rows hold ``<|image_pad|>``.
        grids: (height, width) in patches of each picture.
        images: uint8 pictures at model size, one per grid.
        original: The uint8 picture before resizing, else None.
        span: Rows that ``pooled`` covers, stop exclusive.
        rows: Rows that ``hidden`` holds.
        hidden: float32 [len(rows), dim], after the final norm.
        pooled: float32 [dim], unit mean over ``span``.
        pooled_all: float32 [dim], unit mean over all rows.
        vit: float32 [n_image, dim], None without a picture.
        distances: For ``float32`` and each wrong variant, relative error of ``vit``,
            largest relative error of a row of ``hidden``, cosine and largest component
            difference of ``pooled``.
    """

    key: str
    kind: str
    text: str | None
    prefix: str
    parts: list[Any]
    ids: NDArray[np.int32]
    grids: list[Grid]
    images: list[NDArray[np.uint8]]
    original: NDArray[np.uint8] | None
    span: tuple[int, int]
    rows: NDArray[np.int32]
    hidden: NDArray[np.float32]
    pooled: NDArray[np.float32]
    pooled_all: NDArray[np.float32]
    vit: NDArray[np.float32] | None
    distances: dict[str, dict[str, float]]

    def patches(self) -> NDArray[np.float32]:
        """float32 [sum(h * w), 1176] of all pictures."""
        return np.concatenate([tiny.patches(image) for image in self.images])


def path(name: str) -> Path:
    """The golden file of a tiny model."""
    return FOLDER / f"{name}.npz"


def images_digest(images: list[NDArray[np.uint8]]) -> str:
    """Digest of the patches of some pictures."""
    digest = hashlib.sha256()
    for image in images:
        digest.update(tiny.patches(image).astype("<f4").tobytes())
    return digest.hexdigest()


def _images(meta: dict[str, Any], arrays: dict[str, Any]) -> list[NDArray[np.uint8]]:
    key = meta["key"]
    if meta["kind"] == "resized":
        images = [arrays[f"{key}/resized"]]
    elif meta["grids"]:
        images = [tiny.picture(h, w, seed=i) for i, (h, w) in enumerate(meta["grids"])]
    else:
        return []
    if images_digest(images) != meta["patches_sha256"]:
        raise StaleGoldenError(f"case {key}: the patches differ from the recorded ones; {REMEDY}")
    return images


def _case(meta: dict[str, Any], arrays: dict[str, Any]) -> Case:
    key = meta["key"]
    return Case(
        key=key,
        kind=meta["kind"],
        text=meta["text"],
        prefix=meta["prefix"],
        parts=[tuple(part) if isinstance(part, list) else part for part in meta["parts"]],
        ids=arrays[f"{key}/ids"],
        grids=[(h, w) for h, w in meta["grids"]],
        images=_images(meta, arrays),
        original=tiny.pixels(*meta["original"]) if meta["original"] else None,
        span=(meta["span"][0], meta["span"][1]),
        rows=arrays[f"{key}/rows"],
        hidden=arrays[f"{key}/hidden"],
        pooled=arrays[f"{key}/pooled"],
        pooled_all=arrays[f"{key}/pooled_all"],
        vit=arrays.get(f"{key}/vit"),
        distances=meta["distances"],
    )


@lru_cache
def _read(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(path(name)) as file:
        arrays = {key: file[key] for key in file.files}
    return json.loads(str(arrays.pop("meta"))), arrays


def meta(name: str) -> dict[str, Any]:
    """Digest of the weights, versions of what made the file, and every case's record."""
    return _read(name)[0]


@lru_cache
def load(name: str) -> dict[str, Case]:
    """The cases of a tiny model by key.

    Raises:
        StaleGoldenError: The seeds make other pictures now.
    """
    record, arrays = _read(name)
    return {case["key"]: _case(case, arrays) for case in record["cases"]}


@lru_cache
def weights(name: str) -> tiny.Weights:
    """``tiny.weights`` of a tiny model, checked against the golden file.

    Raises:
        StaleGoldenError: The seed makes other weights now.
    """
    arrays = tiny.weights(tiny.MODELS[name])
    if tiny.sha256(arrays) != meta(name)["weights_sha256"]:
        raise StaleGoldenError(f"{name}: the weights differ from the recorded ones; {REMEDY}")
    return arrays
