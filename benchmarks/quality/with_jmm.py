"""An Embedder as a retriever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jmm import Embedder
from quality.task import NoProjector, Vectors


class JmmRetriever:
    """The two files of a model and the Embedder's options."""

    def __init__(self, files: list[str], options: dict[str, Any]) -> None:
        self._embedder = Embedder(*files, **options)

    def queries(self, texts: list[str], *, multi_vector: bool) -> Vectors:
        self._check(multi_vector)
        return self._embedder.encode_query(texts, multi_vector=multi_vector)

    def documents(self, items: list[Any], *, multi_vector: bool) -> Vectors:
        self._check(multi_vector)
        return self._embedder.encode_document(items, multi_vector=multi_vector)

    def _check(self, multi_vector: bool) -> None:
        if multi_vector and self._embedder.multi_vector_dim is None:
            raise NoProjector("no multi-vector projector in its files")

    def info(self) -> dict[str, Any]:
        settings = self._embedder.info
        keys = ("name", "profile", "task", "n_ctx", "min_pixels", "max_pixels", "kv_cache")
        files = [Path(str(settings[key])) for key in ("model", "mmproj") if settings[key]]
        return {
            "bytes": sum(file.stat().st_size for file in files),
            **{key: settings[key] for key in keys},
        }

    def close(self) -> None:
        self._embedder.close()
