"""The adapter in LlamaIndex's own index."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError
from support import tiny
from support.loops import turns_beside

pytest.importorskip("llama_index.core", reason="needs pip install 'jmm[llama-index]'")
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MultiModalEmbedding
from llama_index.core.schema import TextNode

from jmm.integrations.llama_index import JmmEmbedding

TEXTS = ["a red circle", "blue and yellow stripes", "the digit 7"]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as embedder:
        yield embedder


def test_vectors(embedder: Embedder, tmp_path: Path) -> None:
    model = JmmEmbedding(embedder, embed_batch_size=2)
    assert isinstance(model, MultiModalEmbedding)
    assert model.embed_batch_size == 2
    assert model.model_name == embedder.info["name"]
    documents = np.float32(model.get_text_embedding_batch(TEXTS))
    np.testing.assert_array_equal(documents, embedder.encode_document(TEXTS))
    np.testing.assert_array_equal(np.float32(model.get_text_embedding(TEXTS[1])), documents[1])
    query = model.get_query_embedding("red")
    np.testing.assert_array_equal(np.float32(query), embedder.encode_query("red"))
    assert asyncio.run(model.aget_query_embedding("red")) == query

    path, file = tmp_path / "page.png", BytesIO()
    picture = tiny.picture(4, 6)
    Image.fromarray(picture).save(path)
    Image.fromarray(picture).save(file, "PNG")
    right = embedder.encode_images(picture)
    for vector in (
        model.get_image_embedding(str(path)),
        asyncio.run(model.aget_image_embedding(str(path))),
        *model.get_image_embedding_batch([str(path), file]),
    ):
        np.testing.assert_array_equal(np.float32(vector), right)


def test_the_index_ranks_as_the_dot_products(embedder: Embedder) -> None:
    index = VectorStoreIndex(
        [TextNode(text=text) for text in TEXTS], embed_model=JmmEmbedding(embedder)
    )
    found = index.as_retriever(similarity_top_k=3).retrieve("stripes of blue")
    scores = embedder.encode_document(TEXTS) @ embedder.encode_query("stripes of blue")
    order = np.argsort(-scores)
    assert [node.get_content() for node in found] == [TEXTS[i] for i in order]
    np.testing.assert_allclose([node.score for node in found], scores[order], rtol=1e-5)


def test_a_loop_goes_on_beside_texts(embedder: Embedder) -> None:
    """Texts are embedded in a thread, together, as queries and pictures are."""
    model = JmmEmbedding(embedder)
    texts = ["a red circle in the middle of a page " * 8] * 24

    found, turns = asyncio.run(turns_beside(model.aget_text_embedding_batch(texts)))
    np.testing.assert_array_equal(np.float32(found), embedder.encode_document(texts))
    assert turns > 2
    one = asyncio.run(model.aget_text_embedding(texts[0]))
    np.testing.assert_array_equal(np.float32(one), np.float32(found[0]))


def test_tasks_and_settings(embedder: Embedder) -> None:
    with pytest.raises(InputError, match="task is 'code'"):
        JmmEmbedding(embedder, task="code").get_query_embedding("red")
    with pytest.raises(TypeError, match="JmmEmbedding has no setting nonsense"):
        JmmEmbedding(embedder, nonsense=3)
    with pytest.raises(InputError, match=r"'model.gguf' given; an Embedder is needed"):
        JmmEmbedding("model.gguf")
