"""Adapters, and documents of several pictures, against transformers in double, live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exactness import COMPONENT
from jmm import Embedder
from support import extras, gguf_writer, tiny
from support.sequences import Grid, cosine, relative_error, unit_mean, vision_span

pytestmark = pytest.mark.torch
reference = pytest.importorskip("support.reference")

SEED = 300
RELATIVE = 1e-4
NAMES = ("qwen25_small", "qwen25_head80", "qwen2_small")
TEXTS = ("a", "a red square in a picture", "13 blue boats, and the harbour at night " * 8)

# Parts of one document: texts, and grids of pictures.
DOCUMENTS: tuple[list[str | Grid], ...] = (
    ["one ", (4, 6), " two ", (20, 14), " end"],
    [(16, 10), (2, 40)],
    [(4, 4), " of ", (4, 4), (30, 18), "three"],
    ["before ", (18, 18)],
)


class Model:
    """Seeded files, and the same in transformers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model = replace(tiny.MODELS[name], seed=SEED + tiny.MODELS[name].seed)
        self.weights = tiny.weights(self.model)
        self.projector = extras.projector(self.model)
        self.pairs = extras.adapter(self.model, self.weights, 0)
        tensors = self.projector.tensors()
        self.files = (
            gguf_writer.write_text(self.model, self.weights, folder / "t.gguf", extra=tensors),
            gguf_writer.write_mmproj(self.model, self.weights, folder / "m.gguf"),
        )
        self.adapter = gguf_writer.write_adapter(
            folder / "a.gguf", extras.native_names(self.pairs), alpha=extras.ALPHA
        )


@pytest.fixture(scope="module", params=NAMES)
def tiny_model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param, tmp_path_factory.mktemp(request.param))


def test_adapter(tiny_model: Model) -> None:
    weights, projector = extras.merged(tiny_model.weights, tiny_model.projector, tiny_model.pairs)
    net = reference.Reference(tiny_model.model, weights, double=True)
    base = reference.Reference(tiny_model.model, tiny_model.weights, double=True)
    options: Any = {"profile": "jina-embeddings-v4", "adapters": {"retrieval": tiny_model.adapter}}
    with Embedder(*tiny_model.files, n_threads=2, **options) as adapted:
        for text in TEXTS:
            hidden = net.hidden(net.tokenize("Query: " + text))
            right = unit_mean(hidden)
            assert cosine(right, base.text_vector("Query: " + text)) < 0.99
            assert relative_error(adapted.encode_query(text), right) < RELATIVE
            vectors = adapted.encode_query(text, multi_vector=True)
            assert relative_error(vectors, projector(hidden)) < RELATIVE
        for grid in ((4, 6), (20, 14)):
            picture = tiny.picture(*grid, seed=SEED)
            ids, patches = net.image_ids(grid), tiny.patches(picture)
            hidden = net.hidden(ids, patches, [grid])
            right = unit_mean(hidden, *vision_span(tiny_model.model, ids))
            assert relative_error(adapted.encode_images(picture), right) < RELATIVE
            vectors = adapted.encode_images(picture, multi_vector=True)
            assert relative_error(vectors, projector(hidden)) < RELATIVE


def in_words(parts: list[str | Grid]) -> str:
    """The document as the reference's processor would write it."""
    return "".join(
        part
        if isinstance(part, str)
        else f"<|vision_start|>{'<|image_pad|>' * (part[0] * part[1] // 4)}<|vision_end|>"
        for part in parts
    )


@pytest.mark.parametrize("profile", ["qwen2.5-vl", "jina-embeddings-v4"])
@pytest.mark.parametrize("parts", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_documents(parts: list[str | Grid], profile: str, tiny_model: Model) -> None:
    net = reference.Reference(tiny_model.model, tiny_model.weights, double=True)
    grids = [part for part in parts if not isinstance(part, str)]
    pictures = [tiny.picture(*grid, seed=i) for i, grid in enumerate(grids)]
    remaining = iter(pictures)
    item = [part if isinstance(part, str) else next(remaining) for part in parts]
    words, span = in_words(parts), False
    if profile == "jina-embeddings-v4":
        span = len(grids) == len(parts)
        middle = "Describe the image." if span else ""
        words = f"<|im_start|>user\n{words}{middle}<|im_end|>\n"
    ids = net.tokenize(words, special=True)
    hidden = net.hidden(ids, np.concatenate([tiny.patches(p) for p in pictures]), grids)
    rows = vision_span(tiny_model.model, ids) if span else (0, None)
    with Embedder(*tiny_model.files, profile=profile, n_threads=2) as embedder:
        (vector,) = embedder.encode_document([item])
        assert np.abs(vector - unit_mean(hidden, *rows)).max() <= COMPONENT
        (vectors,) = embedder.encode_document([item], multi_vector=True)
        assert np.abs(vectors - tiny_model.projector(hidden)).max() <= 2e-5
        # two pictures have two orders, and the order counts
        (other,) = embedder.encode_document([item[::-1]])
        assert len(parts) == 2 or np.abs(other - vector).max() > COMPONENT
