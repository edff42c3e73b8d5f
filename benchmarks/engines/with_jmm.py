"""jmm itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from common import inputs
from common.timing import Timing

import jmm


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        self._embedder = jmm.Embedder(
            config["text"],
            config["tower"],
            n_threads=config["n_threads"],
            device=config.get("device", "cpu"),
            **config.get("options", {}),
        )

    def info(self) -> dict[str, Any]:
        settings = self._embedder.info
        return {
            "build": jmm.build_info(),
            "device": settings["device"],
            "kv_cache": settings["kv_cache"],
            "weight_bytes": settings["weight_bytes"],
            "profile": settings["profile"],
        }

    def pictures(self, height: int, width: int, count: int, seed: int) -> Timing:
        """The public call, then the vision tower alone on the same patches."""
        images = inputs.pictures(height, width, count, seed)
        patches, grids = inputs.patches(images), inputs.grid_thw(images)
        del images
        start = time.perf_counter()
        vectors = self._embedder.encode_patches(patches, grids)
        total = time.perf_counter() - start
        vision = self._vision(patches, grids)
        return Timing(total=total, vision=vision, language=total - vision, vectors=vectors)

    def picture(self, height: int, width: int, seed: int) -> Timing:
        """The public call alone, with its processor time."""
        images = inputs.pictures(height, width, 1, seed)
        patches, grids = inputs.patches(images), inputs.grid_thw(images)
        start, busy = time.perf_counter(), time.process_time()
        vectors = self._embedder.encode_patches(patches, grids)
        busy = time.process_time() - busy
        return Timing(total=time.perf_counter() - start, processor=busy, vectors=vectors)

    def _vision(self, patches: Any, grids: Any) -> float:
        engine = self._embedder._engine
        parts, start = [], 0
        for _, grid_h, grid_w in grids.tolist():
            stop = start + grid_h * grid_w
            parts.append((patches[start:stop], grid_h, grid_w))
            start = stop
        begin = time.perf_counter()
        engine.encode_vision(parts)
        return time.perf_counter() - begin

    def texts(self, n_texts: int, n_tokens: int, batch: int, seed: int) -> Timing:
        """``batch`` texts in a call."""
        texts = inputs.texts(n_texts, n_tokens, seed)
        start = time.perf_counter()
        rows = [
            self._embedder.encode_query(texts[first : first + batch])
            for first in range(0, n_texts, batch)
        ]
        return Timing(total=time.perf_counter() - start, vectors=np.concatenate(rows))

    def mixed(self, n_texts: int, longest: int, seed: int) -> dict[str, Any]:
        """Texts of many lengths in one call, then one by one."""
        texts = inputs.mixed_texts(n_texts, longest, seed)
        answer: dict[str, Any] = {"vectors": []}
        for name, calls in (("together", [texts]), ("alone", [[text] for text in texts])):
            start, busy = time.perf_counter(), time.process_time()
            for call in calls:
                self._embedder.encode_query(call)
            answer[f"{name}_processor"] = time.process_time() - busy
            answer[name] = time.perf_counter() - start
        return answer
