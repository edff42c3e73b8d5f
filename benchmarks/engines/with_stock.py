"""Stock llama.cpp of the pinned version, through the small library that stock/build.py makes."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import inputs
from common.shape import true_width
from common.timing import Timing
from stock.build import library

MAX_TEXTS = 64


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        path = Path(os.environ.get("JMM_BENCH_STOCK") or library())
        if not path.exists():
            raise FileNotFoundError("not built: run benchmarks/stock/build.py first")
        self._lib = _declare(ctypes.CDLL(str(path)))
        self._config = config
        self._model = true_width(tuple(config["layers"]))
        self._options = config.get("options", {})
        self._n_ctx, self._handle = 0, None
        self._reserve(2048)

    def _reserve(self, n_ctx: int) -> None:
        """Opens the model, again when an item needs more context than before."""
        if n_ctx <= self._n_ctx:
            return
        if self._handle:
            self._lib.stock_close(self._handle)
        self._n_ctx = n_ctx
        self._handle = self._lib.stock_open(
            os.fsencode(self._config["text"]),
            os.fsencode(self._config["tower"]),
            self._config["n_threads"],
            n_ctx,
            self._options.get("n_batch", 0),
            self._options.get("n_ubatch", 0),
            MAX_TEXTS,
        )
        if not self._handle:
            raise RuntimeError("stock llama.cpp cannot load the model")

    def info(self) -> dict[str, Any]:
        return {"system_info": self._lib.stock_system_info().decode().strip()}

    def pictures(self, height: int, width: int, count: int, seed: int) -> Timing:
        """One picture after the other: libmtmd's helper takes one."""
        images = inputs.pictures(height, width, count, seed)
        n_tokens = inputs.image_tokens(height, width) + len(inputs.MARKERS)
        self._reserve(n_tokens)
        vectors = np.empty((count, self._lib.stock_n_embd(self._handle)), np.float32)
        sums = np.zeros(3)
        for image, row in zip(images, vectors, strict=True):
            seconds = np.zeros(3)
            found = self._lib.stock_picture(
                self._handle, image.ctypes.data, width, height, seconds.ctypes.data, row.ctypes.data
            )
            if found != n_tokens:
                raise RuntimeError(f"stock llama.cpp gave {found} rows, and {n_tokens} are right")
            sums += seconds
        prepare, vision, language = sums.tolist()
        return Timing(
            total=vision + language,
            vision=vision,
            language=language,
            prepare=prepare,
            vectors=vectors,
        )

    def texts(self, n_texts: int, n_tokens: int, batch: int, seed: int) -> Timing:
        """``batch`` texts in a call."""
        ids_of = self._model.vocab.ids
        texts = inputs.texts(n_texts, n_tokens, seed)
        ids = np.array([[ids_of[letter] for letter in text] for text in texts], np.int32)
        vectors = np.empty((n_texts, self._lib.stock_n_embd(self._handle)), np.float32)
        start = time.perf_counter()
        for first in range(0, n_texts, batch):
            part, rows = ids[first : first + batch], vectors[first : first + batch]
            found = self._lib.stock_texts(
                self._handle, part.ctypes.data, len(part), n_tokens, rows.ctypes.data
            )
            if found != part.size:
                raise RuntimeError("stock llama.cpp failed on the texts")
        return Timing(total=time.perf_counter() - start, vectors=vectors)


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    lib.stock_open.restype = pointer
    lib.stock_open.argtypes = [text, text, *[number] * 5]
    lib.stock_close.argtypes = [pointer]
    lib.stock_n_embd.argtypes = [pointer]
    lib.stock_system_info.restype = text
    lib.stock_picture.argtypes = [pointer, pointer, number, number, pointer, pointer]
    lib.stock_texts.argtypes = [pointer, pointer, number, number, pointer]
    return lib
