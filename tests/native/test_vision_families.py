"""Families with towers of tiles against golden files: what transformers computed in double."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import exactness
from jmm import (
    ContextOverflowError,
    Embedder,
    InputError,
    ModelLoadError,
    VisionEncoder,
    VisionTokens,
)
from jmm.profiles import Tile, Tiled
from jmm.tiles import TileProcessor
from support import family_golden, tiny, vision_family
from support.family_golden import PictureCase
from support.sequences import relative_error, worst_row_error
from support.vision_family import VISION_FAMILIES

NAMES = sorted(VISION_FAMILIES)
CASES = [(name, key) for name in NAMES for key in family_golden.load(name).pictures]
# Every token of them sees every other.
UNDIVIDED = ("embeddinggemma2_vision",)
VIT = 1e-5
ROW = 2e-5
Files = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The model's two files, written once."""
    folder = tmp_path_factory.mktemp("vision_families")

    @lru_cache
    def write(name: str) -> tuple[Path, Path]:
        weights = family_golden.load(name).weights
        return vision_family.write(VISION_FAMILIES[name], weights, folder / name)

    return write


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def embedder(name: str, files: Files) -> Iterator[Embedder]:
    with Embedder(*files(name), n_threads=1) as embedder:
        yield embedder


def tiled(embedder: Embedder, case: PictureCase) -> Tiled:
    """The recorded tiles, laid out by ours for a picture of that size."""
    processor = embedder._reader.processor
    assert isinstance(processor, TileProcessor)
    mine = processor(Image.fromarray(tiny.pixels(*case.size)))
    mean, std = (
        np.array(processor.metadata[f"clip.vision.image_{key}"], np.float32)
        for key in ("mean", "std")
    )
    values = (case.tiles.astype(np.float64) * (1 / 255)).astype(np.float32)
    recorded = iter((values - mean) / std)
    pieces = [
        Tile(np.ascontiguousarray(next(recorded))) if isinstance(piece, Tile) else piece
        for piece in mine.pieces
    ]
    assert next(recorded, None) is None
    return Tiled(tuple(pieces))


@pytest.mark.parametrize(("name", "key"), CASES)
def test_picture(name: str, key: str, files: Files) -> None:
    case = family_golden.load(name).pictures[key]
    with Embedder(*files(name), n_threads=1) as embedder:
        picture = tiled(embedder, case)
        before, after = case.around
        item = (
            embedder._kinds.document("retrieval").place([before, picture, after])
            if before
            else embedder._kinds.place_pictures(picture)
        )
        sequence = item.sequence
        ids = np.array(sequence.token_ids())
        image = VISION_FAMILIES[name].words().ids[VISION_FAMILIES[name].image_token]
        np.testing.assert_array_equal(np.where(ids < 0, image, ids), case.ids)
        assert item.span == (0, len(ids))
        pooled = np.empty((1, embedder.dim), np.float32)
        hidden = np.empty((len(ids), embedder.dim), np.float32)
        embedder._engine.forward([sequence], [item.span], pooled, hidden)
        vit = np.concatenate(embedder._engine.encode_vision(sequence.pictures))
    assert relative_error(vit, case.vit) <= VIT
    vector = pooled[0] / np.linalg.norm(pooled[0])
    assert worst_row_error(hidden, case.hidden) <= ROW
    assert np.abs(vector - case.pooled).max() <= exactness.COMPONENT


def test_profile(name: str, embedder: Embedder) -> None:
    named = {"smolvlm": "idefics3", "embeddinggemma2_vision": "embeddinggemma2"}.get(name, name)
    assert embedder.profile.name == named
    assert embedder.profile.pooling == "mean"


def test_company_moves_no_component_further(embedder: Embedder) -> None:
    items = ["a text", tiny.pixels(100, 70), tiny.pixels(60, 170), "two words", tiny.pixels(56, 56)]
    alone = np.stack([embedder.encode_document([item])[0] for item in items])
    together = embedder.encode_document(items)
    assert np.abs(together - alone).max() <= exactness.COMPONENT
    pictures = [item for item in items if not isinstance(item, str)]
    assert np.abs(embedder.encode_images(pictures) - alone[[1, 2, 4]]).max() <= exactness.COMPONENT


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNDIVIDED])
def test_small_forwards(name: str, files: Files) -> None:
    """Gemma 3's rows of a picture pass together; others one by one."""
    least = 16 if name == "gemma3" else 1
    item = ["before", tiny.pixels(100, 70), "after", tiny.pixels(56, 56)]
    with Embedder(*files(name), n_threads=1) as whole:
        wanted = whole.encode_document([item])
    for n_ubatch in (least, least + 3):
        with Embedder(*files(name), n_threads=1, n_ubatch=n_ubatch, n_batch=n_ubatch + 1) as parts:
            assert np.abs(parts.encode_document([item]) - wanted).max() <= exactness.COMPONENT


@pytest.mark.parametrize("option", ["n_ubatch", "n_batch"])
def test_a_picture_that_does_not_fit(option: str, files: Files) -> None:
    with Embedder(*files("gemma3"), n_threads=1, **{option: 15}) as small:
        with pytest.raises(ContextOverflowError, match="16 tokens of the item see each other"):
            small.encode_images(tiny.pixels(56, 56))
        assert np.isfinite(small.encode_document("a text of more than fifteen tokens " * 3)).all()


def test_what_to_do_without_a_limit_of_pixels(name: str, files: Files) -> None:
    picture = tiny.pixels(56, 56)
    told = r"the (picture|item) has (\d+) tokens and n_ctx is \d+; raise n_ctx"
    with (
        Embedder(*files(name), n_threads=1, n_ctx=1) as small,
        pytest.raises(ContextOverflowError, match=told) as caught,
    ):
        small.encode_images(picture)
    n_tokens = int(str(caught.value).split()[5])
    with (
        Embedder(*files(name), n_threads=1, n_ctx=n_tokens) as small,
        pytest.raises(ContextOverflowError, match=told),
    ):
        small.encode_document([["a page before " * 9, picture]])


@pytest.mark.parametrize("option", ["n_ubatch", "n_batch"])
@pytest.mark.parametrize("name", UNDIVIDED)
def test_a_document_that_does_not_fit(name: str, option: str, files: Files) -> None:
    item = ["a page before", tiny.pixels(56, 56), "after"]
    with Embedder(*files(name), n_threads=1) as whole:
        wanted = whole.encode_document([item])
        n_tokens = len(whole.trace(item, kind="document").ids)
    with Embedder(*files(name), n_threads=1, **{option: n_tokens - 1}) as small:
        with pytest.raises(ContextOverflowError, match=f"{n_tokens} tokens.* {n_tokens} or more"):
            small.encode_document([item])
        assert np.isfinite(small.encode_images(tiny.pixels(56, 56))).all()
    with Embedder(*files(name), n_threads=1, **{option: n_tokens}) as enough:
        rows = enough.encode_document(["a text", item, "the fox"])
    assert np.abs(rows[1] - wanted[0]).max() <= exactness.COMPONENT


def test_what_these_families_do_not_take(embedder: Embedder, files: Files, name: str) -> None:
    picture = tiny.pixels(56, 56)
    with pytest.raises(InputError, match="takes no patches"):
        embedder.encode_patches(np.zeros((16, 1176), np.float32), [1, 4, 4])
    with pytest.raises(InputError, match="Qwen's families alone"):
        embedder.encode_vision(picture)
    tokens = VisionTokens(
        np.ones((4, embedder.dim), np.float32), (4, 4), embedder.info["fingerprint"]
    )
    with pytest.raises(InputError, match="vision tokens"):
        embedder.encode_images([tokens])
    with pytest.raises(ModelLoadError, match="cannot run apart"):
        VisionEncoder(files(name)[1])
    with pytest.raises(InputError, match="no limit to set"):
        Embedder(*files(name), max_pixels=10_000)
    with pytest.raises(InputError, match="aspect ratio"):
        embedder.encode_images(np.zeros((1, 201, 3), np.uint8))
    with (
        Embedder(*files(name), load_vision=False) as halved,
        pytest.raises(InputError, match="not loaded"),
    ):
        halved.encode_images(picture)


@pytest.mark.parametrize("name", ["gemma3", "llava"])
def test_trace(name: str, files: Files) -> None:
    with Embedder(*files(name), n_threads=1) as embedder:
        trace = embedder.trace(tiny.pixels(70, 56))
    assert trace.picture is not None
    start, stop = trace.picture
    assert stop - start == 16
    assert [i for i, token in enumerate(trace.ids) if token < 0] == list(range(start, stop))
    assert (trace.grid, trace.patches) == (None, None)
