"""LangChain's `Embeddings` (extra ``langchain``)."""

from __future__ import annotations

from collections.abc import Iterable

from jmm.embedder import Embedder
from jmm.extras import missing
from jmm.images import ImageSource
from jmm.integrations.given import checked

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise missing("langchain-core", "jmm.integrations.langchain") from error


class JmmEmbeddings(Embeddings):
    """An Embedder as LangChain's `Embeddings`, for its vector stores and retrievers.

    Args:
        embedder: What embeds; it stays the caller's to close.
        task: One of its tasks; None for its own.

    Example:
        >>> with Embedder() as embedder:
        ...     len(JmmEmbeddings(embedder).embed_query("a red circle"))
        256
    """

    def __init__(self, embedder: Embedder, *, task: str | None = None) -> None:
        self.embedder = checked(embedder)
        self.task = task

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector of ``dim`` numbers per text."""
        vectors: list[list[float]] = self.embedder.encode_document(texts, task=self.task).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        vector: list[float] = self.embedder.encode_query(text, task=self.task).tolist()
        return vector

    def embed_images(self, images: Iterable[ImageSource]) -> list[list[float]]:
        """One vector per picture, for ``add_embeddings`` and the like; see `Embedder`."""
        vectors: list[list[float]] = self.embedder.encode_images(images, task=self.task).tolist()
        return vectors
