"""NaN and infinity in the weights of one token reach the items that hold it, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exactness import COMPONENT
from jmm import Embedder, NonFiniteError
from support import gguf_writer, golden, tiny

MODEL = tiny.MODELS["qwen25_small"]
WORD = "z"
GOOD = ["a", "hello there", "this is a test", "1 2 3 4 5", "a b c d e f g h i j k"]
BAD = [WORD, f"before {WORD} behind", "a text that ends in " + WORD]
PICTURE = tiny.picture(6, 4)
EMBEDDING = "model.language_model.embed_tokens.weight"


def write(folder: Path, **changes: object) -> tuple[Path, Path]:
    """The model with ``{parameter: (index, value)}`` written over."""
    weights = {name: array.copy() for name, array in golden.weights(MODEL.name).items()}
    for name, (index, value) in changes.items():  # type: ignore[misc]
        weights[name][index] = value
    return (
        gguf_writer.write_text(MODEL, weights, folder / "text.gguf"),
        gguf_writer.write_mmproj(MODEL, weights, folder / "mmproj.gguf"),
    )


@pytest.fixture(scope="module", params=["all NaN", "one NaN", "one infinity"])
def poisoned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Embedder]:
    """A model in which the embedding of `WORD` is not finite."""
    token = MODEL.vocab.tokens.index(WORD)
    index, value = {
        "all NaN": ((token, slice(None)), np.nan),
        "one NaN": ((token, 5), np.nan),
        "one infinity": ((token, 5), np.inf),
    }[request.param]
    files = write(tmp_path_factory.mktemp("poisoned"), **{EMBEDDING: (index, value)})
    with Embedder(*files, n_threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What the good items give in a model that was never poisoned."""
    with Embedder(*write(tmp_path_factory.mktemp("sound")), n_threads=2) as sound:
        vectors = {text: sound.encode_document(text) for text in GOOD}
        return vectors | {"picture": sound.encode_images(PICTURE)}


def test_the_word_is_a_token_of_its_own(poisoned: Embedder) -> None:
    token = MODEL.vocab.tokens.index(WORD)
    for texts, times in ((GOOD, 0), (BAD, 1)):
        for text in texts:
            ids = poisoned._engine.tokenize([(text, False)]).token_ids()
            assert list(ids).count(token) == times, text


def test_alone(poisoned: Embedder, alone: dict[str, np.ndarray]) -> None:
    """Each call after a failed one gives the bits of a model that never failed."""
    for good in GOOD:
        for bad in BAD:
            with pytest.raises(NonFiniteError, match=r"^item 0: .*NaN or infinity") as caught:
                poisoned.encode_document(bad)
            assert caught.value.index == 0
            assert np.isnan(poisoned.encode_document(bad, on_error="nan")).all()
        np.testing.assert_array_equal(poisoned.encode_document(good), alone[good])
    np.testing.assert_array_equal(poisoned.encode_images(PICTURE), alone["picture"])


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3])
@pytest.mark.parametrize("bad_first", [True, False])
def test_in_company(
    poisoned: Embedder, alone: dict[str, np.ndarray], batch_size: int | None, bad_first: bool
) -> None:
    items = [*BAD, *GOOD, PICTURE] if bad_first else [PICTURE, *GOOD, *BAD]
    items = [item for pair in zip(items, reversed(items), strict=True) for item in pair]
    is_bad = [isinstance(item, str) and item in BAD for item in items]
    rows = poisoned.encode_document(items, on_error="nan", batch_size=batch_size)
    assert np.isnan(rows).all(axis=1).tolist() == is_bad
    assert np.isnan(rows).any(axis=1).tolist() == is_bad
    for item, row, bad in zip(items, rows, is_bad, strict=True):
        if not bad:
            wanted = alone[item if isinstance(item, str) else "picture"]
            assert np.abs(row - wanted).max() <= COMPONENT
    with pytest.raises(NonFiniteError) as caught:
        poisoned.encode_document(items, batch_size=batch_size)
    assert is_bad[caught.value.index or 0]
    np.testing.assert_array_equal(poisoned.encode_document(GOOD[2]), alone[GOOD[2]])


def test_in_the_vision_tower(tmp_path: Path, alone: dict[str, np.ndarray]) -> None:
    files = write(tmp_path, **{"model.visual.merger.mlp.2.bias": (0, np.nan)})
    with Embedder(*files, n_threads=2) as embedder:
        rows = embedder.encode_document([GOOD[1], PICTURE, GOOD[3]], on_error="nan")
        assert np.isnan(rows).any(axis=1).tolist() == [False, True, False]
        for row, text in zip(rows[[0, 2]], (GOOD[1], GOOD[3]), strict=True):
            assert np.abs(row - alone[text]).max() <= COMPONENT
            np.testing.assert_array_equal(embedder.encode_document(text), alone[text])


def test_in_every_item(tmp_path: Path) -> None:
    files = write(tmp_path, **{"model.language_model.norm.weight": (0, np.nan)})
    with Embedder(*files, n_threads=2) as embedder:
        assert np.isnan(embedder.encode_document([*GOOD, PICTURE] * 20, on_error="nan")).all()
        with pytest.raises(NonFiniteError, match=r"^item \d: "):
            embedder.encode_document(GOOD)


@pytest.mark.parametrize(
    "part", ["language_model.layers.{}.self_attn.k_proj.bias", "visual.blocks.{}.attn.qkv.bias"]
)
@pytest.mark.parametrize("layer", [1, 2])
def test_lost_keys(part: str, layer: int, tmp_path: Path) -> None:
    """Guards patch 0040: attention whose scores are all NaN is not finite."""
    index = MODEL.v_hidden if "visual" in part else 0  # of the first key
    files = write(tmp_path, **{f"model.{part.format(layer)}": (index, np.nan)})
    with Embedder(*files, n_threads=2) as embedder:
        assert np.isnan(embedder.encode_images(PICTURE, on_error="nan")).all()
        if "visual" not in part:
            assert np.isnan(embedder.encode_document(GOOD, on_error="nan")).all()
