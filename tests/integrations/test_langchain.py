"""The adapter in LangChain's own vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder
from support import tiny

pytest.importorskip("langchain_core", reason="needs pip install 'jmm[langchain]'")
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from jmm.integrations.langchain import JmmEmbeddings

TEXTS = ["a red circle", "blue and yellow stripes", "the digit 7"]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as embedder:
        yield embedder


def test_vectors(embedder: Embedder) -> None:
    embeddings = JmmEmbeddings(embedder)
    assert isinstance(embeddings, Embeddings)
    documents = embeddings.embed_documents(TEXTS)
    assert isinstance(documents[0][0], float)
    np.testing.assert_array_equal(np.float32(documents), embedder.encode_document(TEXTS))
    np.testing.assert_array_equal(
        np.float32(embeddings.embed_query(TEXTS[0])), embedder.encode_query(TEXTS[0])
    )
    assert asyncio.run(embeddings.aembed_documents(TEXTS)) == documents
    assert asyncio.run(embeddings.aembed_query("red")) == embeddings.embed_query("red")
    picture = tiny.picture(4, 6)
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    (vector,) = embeddings.embed_images([file.getvalue()])
    np.testing.assert_array_equal(np.float32(vector), embedder.encode_images(picture))


def test_the_store_ranks_as_the_dot_products(embedder: Embedder) -> None:
    store = InMemoryVectorStore(JmmEmbeddings(embedder))
    store.add_texts(TEXTS)
    found = store.similarity_search_with_score("stripes of blue", k=3)
    scores = embedder.encode_document(TEXTS) @ embedder.encode_query("stripes of blue")
    order = np.argsort(-scores)
    assert [document.page_content for document, _ in found] == [TEXTS[i] for i in order]
    np.testing.assert_allclose([score for _, score in found], scores[order], rtol=1e-5)
