"""Embeddings and torch bf16 matmuls in turns on one thread: neither changes the other.

On an AMX machine both load tile configurations on that thread; elsewhere this still
guards against clashing runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder
from support import tiny

pytestmark = pytest.mark.torch

TEXTS = ["a red bus", "Kosten der Energie im Jahr 2020, nach Monaten"]
ROUNDS = 2


@pytest.fixture
def matmul() -> Callable[[], np.ndarray]:
    """A bf16 product large enough for oneDNN's AMX kernels, as float32."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(128, 256, generator=generator).bfloat16()
    b = torch.randn(256, 128, generator=generator).bfloat16()

    def product() -> np.ndarray:
        with torch.inference_mode():
            return (a @ b).float().numpy()

    return product


def check_turns(embed: Callable[[], np.ndarray], matmul: Callable[[], np.ndarray]) -> None:
    vectors = embed()
    assert np.isfinite(vectors).all()
    product = matmul()
    for _ in range(ROUNDS):
        np.testing.assert_array_equal(embed(), vectors)
        np.testing.assert_array_equal(matmul(), product)


def test_built_in_model(matmul: Callable[[], np.ndarray]) -> None:
    with Embedder(n_threads=1) as embedder:
        check_turns(lambda: embedder.encode_query(TEXTS), matmul)


@pytest.mark.parametrize("file_type", ["F32", "F16", "BF16", "Q8_0"])
def test_tiny_model(
    file_type: str,
    tiny_files: Callable[..., tuple[Path, Path]],
    matmul: Callable[[], np.ndarray],
) -> None:
    text, mmproj = tiny_files("qwen25_small", file_type)
    with Embedder(text, mmproj, n_threads=1) as embedder:
        check_turns(lambda: embedder.encode_query(TEXTS), matmul)
        picture = tiny.picture(8, 6)
        check_turns(lambda: embedder.encode_images([picture]), matmul)
