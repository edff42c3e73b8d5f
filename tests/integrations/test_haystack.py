"""The components in Haystack's own pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, demo
from support import tiny

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
pytest.importorskip("haystack", reason="needs pip install 'jmm[haystack]'")
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream
from haystack.document_stores.in_memory import InMemoryDocumentStore

from jmm.integrations.haystack import JmmDocumentEmbedder, JmmTextEmbedder

TEXTS = ["a red circle", "blue and yellow stripes", "the digit 7"]
PICTURE = tiny.picture(4, 6)


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as embedder:
        yield embedder


def blob() -> ByteStream:
    file = BytesIO()
    Image.fromarray(PICTURE).save(file, "PNG")
    return ByteStream(file.getvalue(), mime_type="image/png")


def test_vectors(embedder: Embedder) -> None:
    documents = [
        Document(content=TEXTS[0]),
        Document(blob=blob()),
        Document(content=TEXTS[1], blob=blob(), meta={"page": 3}),
    ]
    found = JmmDocumentEmbedder().run(documents)["documents"]
    right = embedder.encode_document([TEXTS[0], PICTURE, [PICTURE, TEXTS[1]]])
    np.testing.assert_array_equal(np.float32([document.embedding for document in found]), right)
    assert [document.id for document in found] == [document.id for document in documents]
    assert found[2].meta == {"page": 3}
    assert documents[0].embedding is None
    assert JmmDocumentEmbedder().run([]) == {"documents": []}
    query = JmmTextEmbedder().run("red")["embedding"]
    np.testing.assert_array_equal(np.float32(query), embedder.encode_query("red"))


def test_pipelines_run_and_serialise(embedder: Embedder) -> None:
    model, mmproj = map(str, demo.paths())
    store = InMemoryDocumentStore(embedding_similarity_function="dot_product")
    writing = Pipeline()
    writing.add_component("embed", JmmDocumentEmbedder(model, mmproj, {"n_threads": 1}))
    writing.add_component("write", DocumentWriter(store))
    writing.connect("embed", "write")
    writing.run({"embed": {"documents": [Document(content=text) for text in TEXTS]}})

    asking = Pipeline()
    asking.add_component("embed", JmmTextEmbedder(model, mmproj, {"n_threads": 1}))
    asking.add_component("find", InMemoryEmbeddingRetriever(store, scale_score=False))
    asking.connect("embed.embedding", "find.query_embedding")
    found = asking.run({"embed": {"text": "stripes of blue"}})["find"]["documents"]
    scores = embedder.encode_document(TEXTS) @ embedder.encode_query("stripes of blue")
    order = np.argsort(-scores)
    assert [document.content for document in found] == [TEXTS[i] for i in order]
    np.testing.assert_allclose([document.score for document in found], scores[order], rtol=1e-5)

    alone = Pipeline()
    alone.add_component("embed", JmmTextEmbedder(model, mmproj, {"n_threads": 1}))
    again = Pipeline.loads(alone.dumps(), allowed_modules=["jmm.integrations.haystack"])
    assert again.get_component("embed").options == {"n_threads": 1}
    vector = again.run({"embed": {"text": "red"}})["embed"]["embedding"]
    np.testing.assert_array_equal(np.float32(vector), embedder.encode_query("red"))
