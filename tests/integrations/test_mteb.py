"""The encoder in mteb's own evaluation of a retrieval task that is made here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mteb", reason="needs pip install 'jmm[bench]'")
import datasets
import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import EncoderProtocol
from PIL import Image

from jmm import Embedder, maxsim
from jmm.integrations.mteb import JmmEncoder
from support import tiny

QUERIES = {f"q{i}": text for i, text in enumerate(["a red circle", "blue stripes", "digit 7"])}
TEXTS = {f"d{i}": text for i, text in enumerate(["stripes", "a circle", "seven", "green"])}
PICTURES = {f"d{i}": Image.fromarray(tiny.picture(4, 4 + 2 * i, i)) for i in range(4)}


class Task(AbsTaskRetrieval):
    k_values = (1, 3, 4)
    metadata = TaskMetadata(
        name="MadeHere",
        description="Made here.",
        dataset={"path": "made-here", "revision": "1"},
        type="Retrieval",
        category="t2it",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_3",
    )

    def __init__(self, columns: dict[str, dict[str, Any]]) -> None:
        category = "t2" + "".join(name[0] for name in columns)
        self.metadata = type(self).metadata.model_copy(update={"category": category})
        super().__init__()
        self.columns = columns
        self.scores: dict[str, dict[str, float]] = {}

    def load_data(self, **_: Any) -> None:
        kinds = {"text": datasets.Value("string"), "image": datasets.Image()}
        table = {name: list(values.values()) for name, values in self.columns.items()}
        features = {"id": datasets.Value("string"), **{name: kinds[name] for name in table}}
        corpus = datasets.Dataset.from_dict(
            {"id": list(TEXTS), **table}, datasets.Features(features)
        )
        queries = datasets.Dataset.from_dict({"id": list(QUERIES), "text": list(QUERIES.values())})
        part = {
            "corpus": corpus,
            "queries": queries,
            "relevant_docs": {query: {"d0": 1} for query in QUERIES},
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": part}}
        self.data_loaded = True

    def task_specific_scores(self, scores: Any, qrels: Any, results: Any, **_: Any) -> Any:
        self.scores = results
        return {}


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as embedder:
        yield embedder


@pytest.mark.parametrize("multi_vector", [False, True])
@pytest.mark.parametrize("names", [("text",), ("image",), ("image", "text")])
def test_mteb_scores_what_the_embedder_gives(
    names: tuple[str, ...], multi_vector: bool, embedder: Embedder
) -> None:
    task = Task({name: {"text": TEXTS, "image": PICTURES}[name] for name in names})
    model = JmmEncoder(embedder, "jmm/demo", multi_vector=multi_vector)
    assert isinstance(model, EncoderProtocol)
    result = mteb.evaluate(
        model, task, cache=None, encode_kwargs={"batch_size": 2}, show_progress_bar=False
    )
    assert 0 <= result.task_results[0].get_score() <= 1

    documents = [
        list(row)
        for row in zip(*(column.values() for column in task.columns.values()), strict=True)
    ]
    queries = embedder.encode_query(list(QUERIES.values()), multi_vector=multi_vector)
    vectors = embedder.encode_document(documents, multi_vector=multi_vector)
    right = maxsim(queries, vectors) if multi_vector else queries @ vectors.T
    found = [[task.scores[query][document] for document in TEXTS] for query in QUERIES]
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    pairs = model.similarity_pairwise(queries, vectors[:3])
    np.testing.assert_allclose(pairs, right.diagonal(), rtol=1e-5, atol=1e-6)
