"""The module in sentence-transformers' own class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, demo
from support import tiny

pytest.importorskip(
    "sentence_transformers", reason="needs pip install 'jmm[sentence-transformers]'"
)
from sentence_transformers import SentenceTransformer

from jmm.integrations.sentence_transformers import JmmModule

TEXTS = ["blue and yellow stripes", "a red circle", "the digit 7 on white"]
PICTURES = [Image.fromarray(tiny.picture(4, 6)), Image.fromarray(tiny.picture(4, 4, 1))]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    files = map(str, demo.paths())
    return SentenceTransformer(modules=[JmmModule(*files, {"n_threads": 1})], device="cpu")


def test_vectors(model: SentenceTransformer, embedder: Embedder) -> None:
    assert model.get_embedding_dimension() == embedder.dim
    queries, documents = model.encode_query(TEXTS), model.encode_document(TEXTS, batch_size=2)
    np.testing.assert_array_equal(queries, embedder.encode_query(TEXTS))
    np.testing.assert_array_equal(documents, embedder.encode_document(TEXTS))
    np.testing.assert_array_equal(model.encode(TEXTS), documents)
    np.testing.assert_array_equal(model.encode(TEXTS[0]), documents[0])
    np.testing.assert_array_equal(model.encode(PICTURES), embedder.encode_images(PICTURES))
    similar = model.similarity(queries, documents).numpy()
    np.testing.assert_allclose(similar, queries @ documents.T, atol=1e-6)


def test_a_text_is_a_text(
    model: SentenceTransformer,
    embedder: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    PICTURES[0].save("page.png")
    np.testing.assert_array_equal(model.encode_query("page.png"), embedder.encode_query("page.png"))
    vector = model.encode_document([Path("page.png")])[0]
    np.testing.assert_array_equal(vector, embedder.encode_images(PICTURES[0]))


def test_a_prompt_is_refused(model: SentenceTransformer) -> None:
    with pytest.raises(InputError, match="prompts are those of the model's profile"):
        model.encode(TEXTS, prompt="query: ")


def test_saved_and_loaded(model: SentenceTransformer, tmp_path: Path) -> None:
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert isinstance(again[0], JmmModule)
    assert again[0].options == {"n_threads": 1}
    np.testing.assert_array_equal(again.encode_query(TEXTS), model.encode_query(TEXTS))
