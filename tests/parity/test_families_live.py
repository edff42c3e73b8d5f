"""Further families with fresh weights, texts and pictures: against transformers in double, live."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import token_texts
from exactness import COMPONENT
from jmm import Embedder
from jmm.profiles import Tile
from jmm.tiles import TileProcessor
from support import family, tiny, vision_family
from support.sequences import relative_error, unit_mean, worst_row_error

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
family_reference = pytest.importorskip("support.family_reference")
vision_reference = pytest.importorskip("support.vision_reference")

SEED = 500
VIT = 1e-5
ROW = 2e-5
# Height and width; the last makes a Gemma 3 document longer than its sliding window.
SIZES = ((1, 1), (56, 56), (57, 111), (170, 60), (33, 500), (168, 168), (400, 300))
TEXTS = 8


class Pair:
    """One model, loaded by both."""

    def __init__(self, name: str, folder: Path) -> None:
        known = {**family.FAMILIES, **vision_family.VISION_FAMILIES}[name]
        self.family = replace(known, seed=SEED + known.seed)
        weights = family.weights(self.family, family_reference.shapes(known))
        if name in vision_family.VISION_FAMILIES:
            files = vision_family.write(self.family, weights, folder)
            self.reference = vision_reference.VisionReference(self.family, weights)
        else:
            files = (family.write(self.family, weights, folder / "text.gguf"),)
            self.reference = family_reference.FamilyReference(self.family, weights)
        profile = "text" if name in ("embeddinggemma", "embeddinggemma2") else None
        self.embedder = Embedder(*files, profile=profile, n_threads=1)


@pytest.fixture(scope="module", params=sorted(family.FAMILIES))
def text_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=sorted(vision_family.VISION_FAMILIES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp(request.param))


def test_texts(text_pair: Pair) -> None:
    mixtures = token_texts.mixtures(seed=SEED, count=TEXTS)
    texts = [unicodedata.normalize("NFC", text) for text in mixtures if text.strip()]
    texts = [*texts, " ".join(texts)[:300]]
    rows = text_pair.embedder.encode_document(texts)
    for text, row in zip(texts, rows, strict=True):
        ids = text_pair.reference.tokenize(text)
        sequence = text_pair.embedder._kinds.document("retrieval").place(text).sequence
        assert sequence.token_ids() == ids.tolist(), text
        assert np.abs(row - text_pair.reference.vector(ids)).max() <= COMPONENT, text


@pytest.mark.parametrize("size", SIZES)
def test_pictures(size: tuple[int, int], pair: Pair) -> None:
    picture = tiny.pixels(*size, seed=SEED)
    inputs = pair.reference.process(picture)
    tiled = pair.embedder._reader.processor(Image.fromarray(picture))
    tiles = np.stack([piece.pixels for piece in tiled.pieces if isinstance(piece, Tile)])
    np.testing.assert_array_equal(tiles, inputs.tiles)

    item = pair.embedder._kinds.place_pictures(tiled)
    ids = np.array(item.sequence.token_ids())
    np.testing.assert_array_equal(np.where(ids < 0, inputs.ids, ids), inputs.ids)
    np.testing.assert_array_equal(ids < 0, inputs.is_picture)

    vit = np.concatenate(pair.embedder._engine.encode_vision(item.sequence.pictures))
    assert relative_error(vit, pair.reference.vit(inputs)) <= VIT
    hidden = pair.reference.picture_hidden(inputs)
    pooled = np.empty((1, pair.embedder.dim), np.float32)
    found = np.empty(hidden.shape, np.float32)
    pair.embedder._engine.forward([item.sequence], [item.span], pooled, found)
    assert worst_row_error(found, hidden) <= ROW
    vector = pair.embedder.encode_images(picture)
    assert np.abs(vector - unit_mean(hidden)).max() <= COMPONENT


def test_sizes_of_gemma4() -> None:
    from transformers.models.gemma4 import image_processing_pil_gemma4 as theirs

    rng = np.random.Generator(np.random.PCG64(SEED))
    metadata = {"clip.projector_type": "gemma4v", "clip.vision.patch_size": 16}
    processor = TileProcessor.of(metadata)
    assert processor is not None
    for width, height in np.exp(rng.uniform(0, np.log(8000), (2000, 2))).astype(int).tolist():
        if max(width, height) > 200 * min(width, height):
            continue
        right = theirs.get_aspect_ratio_preserving_size(height, width, 16, 280 * 9, 3)
        assert processor._cut(Image.new("1", (width, height))).shape == right[::-1]


def test_mixed_document(pair: Pair) -> None:
    """Text on both sides of a picture, longer than Gemma 3's sliding window."""
    before, after = "the red square in the middle " * 9, " and a page of the book" * 3
    picture = tiny.pixels(100, 70, seed=SEED)
    inputs = pair.reference.process(picture, before + "{}" + after)
    vector = pair.embedder.encode_document([[before, picture, after]])[0]
    right = unit_mean(pair.reference.picture_hidden(inputs))
    assert np.abs(vector - right).max() <= COMPONENT


def test_pictures_and_texts_that_all_see_each_other(tmp_path: Path) -> None:
    """Text, picture, text, picture, text in one forward, among other items."""
    pair = Pair("embeddinggemma2_vision", tmp_path)
    one, two = (tiny.pixels(*size, seed=SEED) for size in ((100, 70), (33, 90)))
    first = pair.reference.process(one, "a page{} and the fox")
    second = pair.reference.process(two, "{} in the middle")
    joined = replace(
        first,
        ids=np.concatenate([first.ids[:-1], second.ids[1:]]),
        further={
            key: torch.cat([value, second.further[key]]) for key, value in first.further.items()
        },
    )
    right = pair.reference.picture_hidden(joined)
    item = ["a page", one, " and the fox", two, " in the middle"]
    kind = pair.embedder._kinds.document("retrieval")
    ids = np.array(kind.place(kind.read(kind.take(item))).sequence.token_ids())
    np.testing.assert_array_equal(np.where(ids < 0, joined.ids, ids), joined.ids)
    rows = pair.embedder.encode_document(["a text", item, [two], "the fox " * 40])
    assert np.abs(rows[1] - unit_mean(right)).max() <= COMPONENT


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    """Gemma 3 with pictures read causally, as its texts are."""
    pair = Pair("gemma3", tmp_path)
    inputs = pair.reference.process(tiny.pixels(100, 70, seed=SEED))
    right = pair.reference.picture_hidden(inputs)
    wrong = pair.reference.picture_hidden(replace(inputs, is_picture=inputs.is_picture & False))
    assert worst_row_error(wrong, right) >= 1000 * ROW
