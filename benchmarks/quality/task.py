"""A set as mteb's task, a retriever as its model. The scores are mteb's and pytrec_eval's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

# mteb and datasets must not look for anything outside.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

import datasets
import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType

from jmm import MultiVector, maxsim
from quality.collection import Collection

METRICS = {
    "nDCG@5": "ndcg_cut_5",
    "nDCG@10": "ndcg_cut_10",
    "recall@1": "recall_1",
    "recall@5": "recall_5",
    "recall@10": "recall_10",
}
# mteb's own names of the same means.
MTEB_MEANS = {
    "nDCG@5": "ndcg_at_5",
    "nDCG@10": "ndcg_at_10",
    "recall@1": "recall_at_1",
    "recall@5": "recall_at_5",
    "recall@10": "recall_at_10",
}
datasets.disable_progress_bars()

CUTS = (1, 5, 10)
SPLIT, SUBSET = "test", "default"
Vectors = np.ndarray | MultiVector


class NoProjector(Exception):
    """A model gives no multi-vectors."""


class NoModel(Exception):
    """A model of the reference cannot be loaded."""


class Retriever(Protocol):
    """What is measured: anything with these two calls."""

    def queries(self, texts: list[str], *, multi_vector: bool) -> Vectors:
        """float32 [n, dim] of unit rows, or n items of many.

        Raises:
            NoProjector: It has none of many.
        """

    def documents(self, items: list[Any], *, multi_vector: bool) -> Vectors:
        """The same of texts or RGB pictures."""


@dataclass
class Outcome:
    """One retriever on one set.

    Attributes:
        means: By the name in `METRICS`.
        per_query: float64 [n_queries] by metric, in the order of the set's queries.
        ranking: The first ten pages of each query, best first.
        dim: Components of a vector.
        tokens: Vectors per page on average; 1 for single vectors.
    """

    means: dict[str, float]
    per_query: dict[str, np.ndarray]
    ranking: dict[str, list[str]]
    dim: int
    tokens: float


def evaluate(
    collection: Collection, retriever: Retriever, *, items: str, multi_vector: bool, batch: int
) -> Outcome:
    """Embeds the set with a retriever and lets mteb search and score.

    Args:
        collection: The set.
        retriever: What is measured.
        items: "images" or "texts": what of a page is embedded.
        multi_vector: Late interaction instead of one vector per item.
        batch: Items per call of the retriever.
    """
    task = _Task(collection, items)
    model = _Model(retriever, multi_vector)
    means = task.evaluate(
        model, SPLIT, encode_kwargs={"batch_size": batch, "show_progress_bar": False}
    )[SUBSET]
    names = list(collection.queries)
    per_query = {
        metric: np.array([task.scores[query][key] for query in names])
        for metric, key in METRICS.items()
    }
    ranking = {
        # pytrec_eval's order: equal scores by id, descending.
        query: sorted(found, key=lambda page, found=found: (found[page], page), reverse=True)
        for query, found in task.found.items()
    }
    return Outcome(
        {metric: means[key] for metric, key in MTEB_MEANS.items()},
        per_query,
        ranking,
        model.dim,
        model.tokens,
    )


class _Task(AbsTaskRetrieval):
    k_values = CUTS
    metadata = TaskMetadata(
        name="LocalRetrieval",
        description="A set of this machine.",
        dataset={"path": "local", "revision": "local"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_5",
    )

    def __init__(self, collection: Collection, items: str) -> None:
        if items == "images":
            changes = {"category": "t2i", "modalities": ["text", "image"]}
            self.metadata = type(self).metadata.model_copy(update=changes)
        super().__init__()
        self._collection, self._items = collection, items
        self.scores: dict[str, dict[str, float]] = {}
        self.found: dict[str, dict[str, float]] = {}

    def load_data(self, **_: Any) -> None:
        pages = self._collection.items(self._items)
        column = self._items.removesuffix("s")
        kind = datasets.Image() if column == "image" else datasets.Value("string")
        features = datasets.Features({"id": datasets.Value("string"), column: kind})
        corpus = datasets.Dataset.from_dict(
            {"id": list(pages), column: list(pages.values())}, features
        )
        queries = self._collection.queries
        self.dataset = {
            SUBSET: {
                SPLIT: {
                    "corpus": corpus,
                    "queries": datasets.Dataset.from_dict(
                        {"id": list(queries), "text": list(queries.values())}
                    ),
                    "relevant_docs": self._collection.qrels,
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Any,  # noqa: ARG002
        results: dict[str, dict[str, float]],
        **_: str,
    ) -> dict[str, float]:
        """Keeps what mteb only averages."""
        self.scores, self.found = scores, results
        return {}


class _Model:
    """mteb's encoder protocol."""

    mteb_model_meta = ModelMeta.create_empty()

    def __init__(self, retriever: Retriever, multi_vector: bool) -> None:
        self._retriever, self._multi_vector = retriever, multi_vector
        self.dim, self.tokens = 0, 1.0

    def encode(self, inputs: Any, *, prompt_type: PromptType, **_: Any) -> Vectors:
        is_query = prompt_type == PromptType.query
        call = self._retriever.queries if is_query else self._retriever.documents
        parts = [
            call(list(batch.get("image") or batch["text"]), multi_vector=self._multi_vector)
            for batch in inputs
        ]
        if not self._multi_vector:
            rows = np.concatenate(parts)
            self.dim = rows.shape[1]
            return rows
        items = MultiVector.concatenate(parts)
        self.dim = items.dim
        if not is_query:
            self.tokens = float(items.n_tokens.mean())
        return items

    def similarity(self, queries: Vectors, documents: Vectors) -> np.ndarray:
        if isinstance(queries, MultiVector):
            return maxsim(queries, documents)
        return queries @ documents.T

    def similarity_pairwise(self, queries: Vectors, documents: Vectors) -> np.ndarray:
        """Of the protocol; retrieval does not call it."""
        raise NotImplementedError
