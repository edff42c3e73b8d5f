"""Qwen2.5-VL-3B's true widths with any number of layers, and its random weights one by one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import gguf
import numpy as np
from numpy.typing import NDArray

from support import tiny, vocabulary
from support.tiny import TinyModel
from support.vocabulary import Vocabulary

LAYERS = {"few": (4, 8), "full": (36, 32)}
HELP_LAYERS = "few (4+8), full (36+32), or LANGUAGE+VISION"


@lru_cache
def _vocab() -> Vocabulary:
    """Single bytes, the markers, and unused tokens up to the true size: a letter is a token."""
    base = vocabulary.bytes_only()
    n_unused = vocabulary.QWEN_VOCAB_SIZE - len(base)
    unused = tuple(f"[UNUSED{i}]" for i in range(n_unused))
    types = (int(gguf.TokenType.UNUSED),) * n_unused
    return Vocabulary((*base.tokens, *unused), (*base.types, *types), list)


@dataclass(frozen=True, kw_only=True)
class TrueWidth(TinyModel):
    """The tests' model description, with the true size of the vocabulary."""

    @property
    def vocab(self) -> Vocabulary:
        return _vocab()


def parse_layers(text: str) -> tuple[int, int]:
    """Language and vision layers of "few", "full" or "4+8"."""
    if text in LAYERS:
        return LAYERS[text]
    try:
        language, vision = (int(part) for part in text.split("+"))
    except ValueError:
        raise ValueError(f"layers are {text!r}; allowed: {HELP_LAYERS}") from None
    if language < 1 or vision < 2:
        raise ValueError(f"layers are {text!r}; at least 1+2 are needed: stock needs a window")
    return language, vision


def true_width(layers: tuple[int, int]) -> TrueWidth:
    """Qwen2.5-VL-3B with so many language and vision layers.

    Every 8th vision layer attends to the whole picture, as in the true model; of 8 or fewer
    layers every 4th does, so that few layers hold both kinds.
    """
    n_language, n_vision = layers
    return TrueWidth(
        name="qwen25vl-3b",
        family="qwen2_5_vl",
        seed=1,
        vocabulary="bytes_only",
        hidden=2048,
        ffn=11008,
        layers=n_language,
        heads=16,
        kv_heads=2,
        mrope_section=(16, 24, 24),
        tied=True,
        v_hidden=1280,
        v_ffn=3420,
        v_layers=n_vision,
        v_heads=16,
        wa_pattern=8 if n_vision > 8 else min(4, n_vision),
    )


class Weights:
    """transformers' names and float32 values, each made when its turn comes."""

    def __init__(self, model: TinyModel) -> None:
        self.model = model

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        return tiny._shapes(self.model)

    def items(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        for name, shape in self.shapes():
            yield name, self.value(name, shape)

    def value(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        mean, std = tiny._mean_std(name, shape)
        half_width = np.float32(std * np.sqrt(3.0))
        rng = np.random.Generator(np.random.SFC64([self.model.seed, zlib.crc32(name.encode())]))
        values = rng.random(shape, dtype=np.float32)
        values *= 2 * half_width
        values += np.float32(mean) - half_width
        return values


class Outlines(Weights):
    """The same names and shapes without values and without memory."""

    def value(self, _: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return np.broadcast_to(np.float32(0), shape)
