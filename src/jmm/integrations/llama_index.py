"""LlamaIndex's `MultiModalEmbedding` (extra ``llama-index``)."""

from __future__ import annotations

import asyncio
from typing import Any

from jmm.embedder import Embedder
from jmm.extras import missing

try:
    from llama_index.core.base.embeddings.base import Embedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.embeddings import MultiModalEmbedding
    from llama_index.core.schema import ImageType
except ImportError as error:
    raise missing("llama-index-core", "jmm.integrations.llama_index") from error


class JmmEmbedding(MultiModalEmbedding):
    """An Embedder as LlamaIndex's embedding model of texts and pictures.

    Args:
        embedder: What embeds; it stays the caller's to close.
        **settings: Of LlamaIndex's class: ``embed_batch_size``, ``callback_manager``.

    Example:
        >>> with Embedder() as embedder:
        ...     len(JmmEmbedding(embedder).get_query_embedding("a red circle"))
        256
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **settings: Any) -> None:
        super().__init__(**{"model_name": str(embedder.info["name"] or "jmm"), **settings})
        self._embedder = embedder

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._embedder.encode_query(query).tolist()

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._embedder.encode_document(text).tolist()

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._embedder.encode_document(texts).tolist()

    def _get_image_embedding(self, img_file_path: ImageType) -> Embedding:
        return self._embedder.encode_images(img_file_path).tolist()

    def _get_image_embeddings(self, img_file_paths: list[ImageType]) -> list[Embedding]:
        return self._embedder.encode_images(img_file_paths).tolist()

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_image_embedding(self, img_file_path: ImageType) -> Embedding:
        return await asyncio.to_thread(self._get_image_embedding, img_file_path)
