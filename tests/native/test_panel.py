"""Patches 0019, 0023, 0045: the blocked matrix product, on widths that its blocks do not divide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from exactness import needs_integers, needs_panel
from jmm import Embedder, quantize_model
from support import gguf_writer, tiny
from support.gguf_writer import FileType

# A slice is 256 columns, a panel 256 rows of weights and a block 48 rows of activations; strips
# are 16 wide and tiles 6 high, with AVX-512 twice that; integer blocks are 64 long.
WIDE = replace(
    tiny.MODELS["qwen25_small"],
    name="wide",
    seed=9,
    hidden=328,
    ffn=650,
    layers=2,
    mrope_section=(9, 16, 16),
)
# Q8_0 has blocks of 32; half of an integer block is left over here.
WIDE_Q8_0 = replace(WIDE, hidden=352, ffn=672, mrope_section=(12, 16, 16))
# K-quants have blocks of 256.
WIDE_K = replace(WIDE, hidden=512, ffn=768, mrope_section=(16, 24, 24))
N_CHARACTERS = (1, 9, 50, 113, 301)


def rounded(values: NDArray[np.float32], file_type: FileType) -> NDArray[np.float32]:
    """What a file of that type holds; the writer keeps norms and biases in F32."""
    if file_type == "F32" or values.ndim == 1 or (file_type == "Q8_0" and values.shape[-1] % 32):
        return values
    quantization = gguf.GGMLQuantizationType[file_type]
    return gguf.quants.dequantize(gguf.quants.quantize(values, quantization), quantization)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``model(held, file_type)``: weights as a file of type ``held`` has them, in ``file_type``."""
    folder = tmp_path_factory.mktemp("wide")

    @lru_cache
    def write(held: FileType, file_type: FileType) -> Path:
        shape = WIDE_Q8_0 if held == "Q8_0" else WIDE
        weights = {name: rounded(w, held) for name, w in tiny.weights(shape).items()}
        path = folder / f"{held}-{file_type}.gguf"
        return gguf_writer.write_text(shape, weights, path, file_type)

    return write


def vectors(path: Path, n_ubatch: int, n_threads: int = 2) -> NDArray[np.float32]:
    with Embedder(path, n_threads=n_threads, n_ubatch=n_ubatch) as embedder:
        texts = ["x" * n for n in N_CHARACTERS]
        return np.array([embedder.encode_query(text, normalize=False) for text in texts])


def relative(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """The largest error of a row, as a share of the row's length."""
    return float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).max())


def test_agrees_with_dot_products(model: Callable[..., Path]) -> None:
    """F32 weights are left to ggml: its kernels for few and for many rows agree."""
    path = model("F32", "F32")
    assert relative(vectors(path, 1024), vectors(path, 7)) <= 2e-6


@needs_panel
@pytest.mark.parametrize("file_type", ["BF16", "F16"])
def test_activations_are_not_rounded(model: Callable[..., Path], file_type: FileType) -> None:
    """Rounded to the weights' type, BF16 would be 3e-3 off and F16 5e-4."""
    wanted = vectors(model(file_type, "F32"), 1024)
    assert relative(vectors(model(file_type, file_type), 1024), wanted) <= 2e-6


@needs_integers
def test_activations_beside_quantized_weights(model: Callable[..., Path]) -> None:
    """Upstream's eight bits would be 1e-2 off."""
    wanted = vectors(model("Q8_0", "F32"), 1024)
    assert relative(vectors(model("Q8_0", "Q8_0"), 1024), wanted) <= 1e-3


def held_by(path: Path) -> tiny.Weights:
    """WIDE_K's weights as a quantized file holds them, by their parameter names."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    weights = {}
    for name, value in tiny.weights(WIDE_K).items():
        for own_name, _ in gguf_writer.text_tensors({name: value}):
            tensor = tensors[own_name]
            held = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            weights[name] = held.reshape(value.shape).astype(np.float32)
    return weights


@needs_integers
@pytest.mark.parametrize(
    "file_type", ["q4_0", "q5_1", "q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k", "iq4_nl", "iq4_xs"]
)
def test_activations_beside_every_quantized_type(
    model: Callable[..., Path], tmp_path: Path, file_type: str
) -> None:
    """The file's own values in F32 are the right ones, as the gguf package reads them."""
    plain = gguf_writer.write_text(WIDE_K, tiny.weights(WIDE_K), tmp_path / "f32.gguf")
    quantized, same = tmp_path / "quantized.gguf", tmp_path / "same.gguf"
    quantize_model(plain, quantized, file_type)
    gguf_writer.write_text(WIDE_K, held_by(quantized), same)
    wanted = vectors(same, 1024)
    assert relative(vectors(quantized, 1024), wanted) <= 1e-3
    np.testing.assert_array_equal(vectors(quantized, 7, 1), vectors(quantized, 1024))


@needs_panel
@pytest.mark.parametrize(
    "file_type", ["F32", "BF16", "F16", pytest.param("Q8_0", marks=needs_integers)]
)
def test_rows_do_not_depend_on_their_number(
    model: Callable[..., Path], file_type: FileType
) -> None:
    path = model(file_type, file_type)
    wanted = vectors(path, 1024)
    for n_ubatch, n_threads in ((16, 2), (100, 1), (7, 1), (1, 2)):
        np.testing.assert_array_equal(vectors(path, n_ubatch, n_threads), wanted)
