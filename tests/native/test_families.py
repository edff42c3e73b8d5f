"""Text models of further families against golden files: what transformers computed in double."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import exactness
from jmm import ContextOverflowError, Embedder, _core, profiles
from support import family, family_golden
from support.sequences import worst_row_error

NAMES = sorted(family.FAMILIES)
NOT_CAUSAL = ("bert", "embeddinggemma", "embeddinggemma2")
PROMPTED = ("embeddinggemma", "embeddinggemma2")
RECURRENT = ("lfm2", "mamba")
# Of a hidden state's length; the state of a recurrent model carries its roundings along.
ROW = 5e-6
TEXTS = ["a page", "the red square in the middle", "a", "def return", "a picture of the fox " * 9]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The model's file, written once."""
    folder = tmp_path_factory.mktemp("families")

    @lru_cache
    def write(name: str) -> Path:
        weights = family_golden.load(name).weights
        return family.write(family.FAMILIES[name], weights, folder / f"{name}.gguf")

    return write


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def embedder(name: str, path: Callable[[str], Path]) -> Iterator[Embedder]:
    """With the prompt of no task: the golden texts have none."""
    with Embedder(path(name), profile=plain(name), n_threads=1) as embedder:
        yield embedder


def plain(name: str) -> str | None:
    """The profile that adds no prompt; BERT's file tells its pooling, which a name would hide."""
    return "text" if name in PROMPTED else None


def test_ids_and_hidden_states(name: str, path: Callable[[str], Path]) -> None:
    engine = _core.Engine(path(name), n_threads=1)
    for case in family_golden.load(name).cases.values():
        sequence = engine.tokenize([(case.text, False)], add_special=True)
        assert sequence.token_ids() == case.ids.tolist()
        pooled = np.empty((1, engine.n_embd), np.float32)
        hidden = np.empty((sequence.n_tokens, engine.n_embd), np.float32)
        engine.forward([sequence], [(0, sequence.n_tokens)], pooled, hidden)
        assert worst_row_error(hidden, case.hidden) <= ROW


def test_vectors(name: str, embedder: Embedder) -> None:
    cases = list(family_golden.load(name).cases.values())
    rows = embedder.encode_document([case.text for case in cases])
    for case, row in zip(cases, rows, strict=True):
        assert np.abs(row - case.pooled).max() <= exactness.COMPONENT


def test_profile(path: Callable[[str], Path]) -> None:
    pooling = {"bert": "cls"}
    for name in NAMES:
        with Embedder(path(name), n_threads=1) as embedder:
            named = name if name in PROMPTED else "text"
            assert embedder.profile.name == named
            assert embedder.profile.pooling == pooling.get(name, "mean")


@pytest.mark.parametrize("name", PROMPTED)
def test_prompts_of_embeddinggemma(name: str, path: Callable[[str], Path]) -> None:
    with (
        Embedder(path(name), n_threads=1) as prompted,
        Embedder(path(name), profile="text", n_threads=1) as bare,
    ):
        query = prompted.encode_query(TEXTS, task="clustering")
        document = prompted.encode_document(TEXTS)
        for text, q, d in zip(TEXTS, query, document, strict=True):
            whole = bare.encode_query([f"task: clustering | query: {text}"])[0]
            np.testing.assert_allclose(q, whole, atol=exactness.COMPONENT)
            whole = bare.encode_query([f"title: none | text: {text}"])[0]
            np.testing.assert_allclose(d, whole, atol=exactness.COMPONENT)


def test_company_moves_no_component_further(embedder: Embedder) -> None:
    alone = np.stack([embedder.encode_document(text) for text in TEXTS])
    for options in ({}, {"batch_size": 2}):
        together = embedder.encode_document(TEXTS, **options)
        assert np.abs(together - alone).max() <= exactness.COMPONENT
    assert np.abs(embedder.encode_document(TEXTS[::-1])[::-1] - alone).max() <= exactness.COMPONENT


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("n_ubatch", [1, 7, 64])
def test_small_forwards(name: str, n_ubatch: int, path: Callable[[str], Path]) -> None:
    with (
        Embedder(path(name), n_threads=1) as whole,
        Embedder(path(name), n_threads=1, n_ubatch=n_ubatch, n_batch=9) as parts,
    ):
        wanted = whole.encode_document(TEXTS)
        assert np.abs(parts.encode_document(TEXTS) - wanted).max() <= exactness.COMPONENT


@pytest.mark.parametrize("name", RECURRENT)
def test_a_prompt_is_not_shared(name: str, path: Callable[[str], Path]) -> None:
    """The state after a prompt belongs to one sequence."""
    with Embedder(path(name), profile="jina-embeddings-v4", n_threads=1) as embedder:
        kind = embedder._kinds.query("retrieval")
        assert kind.place(TEXTS[0]).sequence.n_prefix > 0
        alone = np.stack([embedder.encode_query(text) for text in TEXTS])
        assert np.abs(embedder.encode_query(TEXTS) - alone).max() <= exactness.COMPONENT


@pytest.mark.parametrize("name", RECURRENT)
def test_more_texts_than_states(name: str, path: Callable[[str], Path]) -> None:
    with Embedder(path(name), n_threads=1) as embedder:
        most = embedder._engine.max_sequences
        assert most < _core.MAX_SEQUENCES
        texts = [f"{TEXTS[i % 5]} {i}" for i in range(2 * most + 3)]
        rows = embedder.encode_document(texts)
        for text, row in list(zip(texts, rows, strict=True))[::7]:
            assert np.abs(embedder.encode_document(text) - row).max() <= exactness.COMPONENT


@pytest.mark.parametrize("option", ["n_ubatch", "n_batch"])
@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_a_text_that_does_not_fit(name: str, option: str, path: Callable[[str], Path]) -> None:
    text = TEXTS[-1]
    with Embedder(path(name), profile=plain(name), n_threads=1) as embedder:
        wanted = embedder.encode_document(text)
        n_tokens = len(embedder.trace(text, kind="document").ids)
    limits = {option: n_tokens - 1}
    with Embedder(path(name), profile=plain(name), n_threads=1, **limits) as small:
        with pytest.raises(ContextOverflowError, match=f"{n_tokens} tokens.* {n_tokens} or more"):
            small.encode_document(text)
        assert small.encode_document(TEXTS[0]).shape == wanted.shape
    with Embedder(path(name), profile=plain(name), n_threads=1, **{option: n_tokens}) as enough:
        rows = enough.encode_document([*TEXTS, text])
        assert np.abs(rows[-1] - wanted).max() <= exactness.COMPONENT


def test_pooling_of_the_file() -> None:
    for number, pooling in ((1, "mean"), (2, "cls"), (3, "last"), (4, "mean"), (None, "mean")):
        chosen = profiles.choose({"general.architecture": "bert", "bert.pooling_type": number})
        assert chosen.profile.pooling == pooling
