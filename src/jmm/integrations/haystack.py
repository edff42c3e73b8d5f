"""Haystack's embedder components (extra ``haystack``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jmm.embedder import Embedder
from jmm.extras import missing

try:
    from haystack import Document, component
except ImportError as error:
    raise missing("haystack-ai", "jmm.integrations.haystack") from error


class _Loaded:
    def __init__(
        self,
        model: str | None = None,
        mmproj: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.mmproj, self.options = model, mmproj, options
        self._embedder: Embedder | None = None

    def warm_up(self) -> None:
        """Loads the model; `run` does where this was not called."""
        if self._embedder is None:
            self._embedder = Embedder(self.model, self.mmproj, **(self.options or {}))


@component
class JmmTextEmbedder(_Loaded):
    """Embeds a query; ``options`` are further arguments of `Embedder`."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """The vector of a query, under "embedding"."""
        self.warm_up()
        return {"embedding": self._embedder.encode_query(text).tolist()}  # type: ignore[union-attr]


@component
class JmmDocumentEmbedder(_Loaded):
    """Embeds documents: the picture in ``blob``, the text in ``content``, or both as one."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Copies of the documents with their vectors, under "documents"."""
        self.warm_up()
        parts = [(d.blob and d.blob.data, d.content) for d in documents]
        items = [[part for part in pair if part] for pair in parts]
        vectors = self._embedder.encode_document(items)  # type: ignore[union-attr]
        pairs = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}
