"""An encoder for mteb (extra ``bench``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from jmm.embedder import Embedder
from jmm.extras import missing
from jmm.integrations.given import checked
from jmm.vectors import MultiVector, maxsim

try:
    from mteb.models.model_meta import ModelMeta
    from mteb.types import PromptType
except ImportError as error:
    raise missing("mteb", "jmm.integrations.mteb") from error


class JmmEncoder:
    """An Embedder as mteb's encoder of texts, pictures, and both in one document.

    Args:
        embedder: What embeds; it stays the caller's to close.
        name: Under which mteb keeps results, ``org/name``.
        **options: Of `Embedder.encode_document`: ``task``, ``multi_vector``, ``truncate_dim``.
    """

    def __init__(self, embedder: Embedder, name: str = "jmm/model", **options: Any) -> None:
        self._embedder = checked(embedder)
        self._options = options
        kinds = ["text", "image"] if embedder.info["mmproj"] else ["text"]
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "modalities": kinds})

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> Any:
        """float32 ``[n, dim]``, or a `MultiVector`: texts that are queries, and documents."""
        parts = []
        for batch in inputs:
            if prompt_type == PromptType.query and not batch.get("image"):
                parts.append(self._embedder.encode_query(batch["text"], **self._options))
                continue
            columns = [batch[name] for name in ("image", "text") if batch.get(name)]
            documents = [[piece for piece in row if piece] for row in zip(*columns, strict=True)]
            parts.append(self._embedder.encode_document(documents, **self._options))
        if self._options.get("multi_vector"):
            return MultiVector.concatenate(parts)
        return np.concatenate(parts)

    def similarity(self, queries: Any, documents: Any) -> Any:
        """Scores ``[n_queries, n_documents]``."""
        if isinstance(queries, MultiVector):
            return maxsim(queries, documents)
        return np.asarray(queries) @ np.asarray(documents).T

    def similarity_pairwise(self, queries: Any, documents: Any) -> Any:
        """Scores ``[n]`` of pairs."""
        pairs = zip(queries, documents, strict=True)
        if isinstance(queries, MultiVector):
            return np.array([maxsim([query], [document])[0, 0] for query, document in pairs])
        return np.array([query @ document for query, document in pairs])
