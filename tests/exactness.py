"""Runs the engine on golden cases, and says how near it has to come.

Example:
    >>> case = golden.load("qwen25_small")["4x6"]
    >>> result = run(engine, case)
    >>> relative_error(result.vit, case.vit) <= VIT
    True
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import _core, cpu, profiles
from support.golden import Case

# Largest relative error of the vision tower's output, and of a token's hidden state.
VIT = 1e-5
TEXT_ROW = 3e-6
PICTURE_ROW = 2e-5
# Of a unit vector.
COSINE = 0.999999
COMPONENT = 2e-6
# What sizes and company may move it; elsewhere few rows take other kernels than many.
MOVED = 0.0 if platform.machine() in ("x86_64", "AMD64") else COMPONENT

_flags = _core.build_info()["system_info"]
needs_panel = pytest.mark.skipif(
    "AVX2 = 1" not in _flags, reason="the blocked product is for AVX2 and AVX-512"
)
# Compiled in and there: quantized weights are repacked for tiles then.
_HAS_TILES = "AMX_INT8 = 1" in _flags and "amx_int8" in (cpu.available() or ())
needs_integers = pytest.mark.skipif(
    "AVX2 = 1" not in _flags or _HAS_TILES, reason="AMX, or no AVX2, takes quantized weights"
)

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Result:
    """What the engine made of a case.

    Attributes:
        ids: int64 [n]; -1 for a picture's row.
        hidden: float32 [n, dim].
        pooled: float32 [dim], unit mean over the case's span.
        vit: float32 [n_image, dim], None without a picture.
    """

    ids: NDArray[np.int64]
    hidden: Float32
    pooled: Float32
    vit: Float32 | None


def tokenize(engine: _core.Engine, case: Case) -> _core.Sequence:
    """The case as a sequence."""
    if case.kind == "text":
        return engine.tokenize(profiles.QWEN_VL.text_parts((profiles.TEXT,), case.text or ""))
    if case.kind == "mixed":
        return engine.tokenize(_mixed_parts(case))
    return engine.tokenize(profiles.JINA_V4.image_parts((case.patches(), *case.grids[0])))


def _mixed_parts(case: Case) -> list[profiles.Part]:
    patches = case.patches()
    parts: list[profiles.Part] = []
    for part in case.parts:
        if isinstance(part, str):
            parts.append((part, False))
        else:
            n = part[0] * part[1]
            parts.append((np.ascontiguousarray(patches[:n]), *part))
            patches = patches[n:]
    return parts


def run(engine: _core.Engine, case: Case) -> Result:
    """Computes a case."""
    sequence = tokenize(engine, case)
    pooled = np.empty((1, engine.n_embd), np.float32)
    hidden = np.empty((sequence.n_tokens, engine.n_embd), np.float32)
    engine.forward([sequence], [case.span], pooled, hidden)
    return Result(
        ids=np.array(sequence.token_ids()),
        hidden=hidden,
        pooled=pooled[0] / np.linalg.norm(pooled[0]),
        vit=vit(engine, sequence) if sequence.picture_span else None,
    )


def vit(engine: _core.Engine, sequence: _core.Sequence) -> Float32:
    """The rows of all pictures of a sequence."""
    return np.concatenate(engine.encode_vision(sequence.pictures))


def row_tolerance(case: Case) -> float:
    """Largest relative error of a row of ``hidden``."""
    return PICTURE_ROW if case.grids else TEXT_ROW


@contextmanager
def written_window(pixels: int) -> Iterator[None]:
    """Lets the GGUF writer add ``clip.vision.window_size``, which the converter leaves out."""
    add_pattern = gguf.GGUFWriter.add_vision_n_wa_pattern

    def add_both(writer: gguf.GGUFWriter, value: int) -> None:
        add_pattern(writer, value)
        writer.add_uint32("clip.vision.window_size", pixels)

    with mock.patch.object(gguf.GGUFWriter, "add_vision_n_wa_pattern", add_both):
        yield
