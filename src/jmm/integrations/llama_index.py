"""LlamaIndex's `MultiModalEmbedding` (extra ``llama-index``)."""

from __future__ import annotations

import asyncio
from typing import Any

from jmm.embedder import Embedder
from jmm.extras import missing
from jmm.integrations.given import checked

try:
    from llama_index.core.base.embeddings.base import Embedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.embeddings import MultiModalEmbedding
except ImportError as error:
    raise missing("llama-index-core", "jmm.integrations.llama_index") from error


class JmmEmbedding(MultiModalEmbedding):
    """An Embedder as LlamaIndex's embedding model of texts and pictures.

    Args:
        embedder: What embeds; it stays the caller's to close.
        task: One of its tasks; None for its own.
        **settings: Of LlamaIndex's class: ``embed_batch_size``, ``callback_manager``.

    Example:
        >>> with Embedder() as embedder:
        ...     len(JmmEmbedding(embedder).get_query_embedding("a red circle"))
        256
    """

    _embedder: Embedder = PrivateAttr()
    _task: str | None = PrivateAttr()

    def __init__(self, embedder: Embedder, *, task: str | None = None, **settings: Any) -> None:
        if unknown := settings.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        super().__init__(**{"model_name": str(checked(embedder).info["name"] or "jmm"), **settings})
        self._embedder, self._task = embedder, task

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._embedder.encode_query(query, task=self._task).tolist()

    def _get_text_embedding(self, texts: Any) -> Any:
        return self._embedder.encode_document(texts, task=self._task).tolist()

    def _get_image_embedding(self, pictures: Any) -> Any:
        return self._embedder.encode_images(pictures, task=self._task).tolist()

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, texts: Any) -> Any:
        return await asyncio.to_thread(self._get_text_embedding, texts)

    async def _aget_image_embedding(self, pictures: Any) -> Any:
        return await asyncio.to_thread(self._get_image_embedding, pictures)

    # One or many, as the embedder's own methods take them.
    _get_text_embeddings, _aget_text_embeddings = _get_text_embedding, _aget_text_embedding
    _get_image_embeddings, _aget_image_embeddings = _get_image_embedding, _aget_image_embedding
