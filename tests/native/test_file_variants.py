"""Vision towers in the other forms that converters write give the same vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import Embedder
from support import gguf_writer, golden, tiny

Tensors = Iterator[tuple[str, NDArray[np.float32]]]
Files = Callable[..., tuple[Path, Path]]

plain_tensors = gguf_writer.vision_tensors
PICTURES = [tiny.picture(4, 6), tiny.picture(10, 2, seed=1)]


def swap_ffn(weights: tiny.Weights, weight_flat: bool) -> Tensors:
    names = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    for name, value in plain_tensors(weights, weight_flat):
        *front, module, kind = name.split(".")
        yield ".".join([*front, names.get(module, module), kind]), value


def flat_alone(weights: tiny.Weights, weight_flat: bool) -> Tensors:
    for name, value in plain_tensors(weights, weight_flat=True):
        if not name.startswith("v.patch_embd.weight") or name.endswith("_flat"):
            yield name, value


def flat_beside_kernels(weights: tiny.Weights, weight_flat: bool) -> Tensors:
    """The flat matrix counts: the kernels beside it are wrong."""
    for name, value in plain_tensors(weights, weight_flat=True):
        is_kernel = name.startswith("v.patch_embd.weight") and not name.endswith("_flat")
        yield name, -value if is_kernel else value


@pytest.mark.parametrize("name", ["qwen25_small", "qwen2_small"])
@pytest.mark.parametrize("variant", [swap_ffn, flat_alone, flat_beside_kernels])
def test_same_vectors(
    name: str,
    variant: Callable[[tiny.Weights, bool], Tensors],
    tiny_files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, mmproj = tiny_files(name)
    with Embedder(text, mmproj, n_threads=1) as embedder:
        wanted = embedder.encode_images(PICTURES)
    monkeypatch.setattr(gguf_writer, "vision_tensors", variant)
    other = gguf_writer.write_mmproj(
        tiny.MODELS[name], golden.weights(name), tmp_path / "mmproj.gguf"
    )
    with Embedder(text, other, n_threads=1) as embedder:
        np.testing.assert_allclose(embedder.encode_images(PICTURES), wanted, atol=2e-6)
