"""Haystack's embedder components (extra ``haystack``)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
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

    @cached_property
    def _embedder(self) -> Embedder:
        return Embedder(self.model, self.mmproj, **(self.options or {}))

    def warm_up(self) -> None:
        _ = self._embedder  # `run` loads it too


@component
class JmmTextEmbedder(_Loaded):
    """Embeds a query; ``options`` are further arguments of `Embedder`.

    Example:
        >>> len(JmmTextEmbedder().run("a red circle")["embedding"])
        256
    """

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """The vector of a query, under "embedding"."""
        return {"embedding": self._embedder.encode_query(text).tolist()}


@component
class JmmDocumentEmbedder(_Loaded):
    """Embeds documents: the picture in ``blob``, the text in ``content``, or both as one."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Copies of the documents with their vectors, under "documents"."""
        items = [[part for part in (d.blob and d.blob.data, d.content) if part] for d in documents]
        vectors = self._embedder.encode_document(items).tolist()
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}
