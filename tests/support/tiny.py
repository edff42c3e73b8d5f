"""Tiny seeded Qwen2-VL and Qwen2.5-VL models, written with numpy alone.

Weights carry transformers' parameter names. They are uniform, scaled by
1/sqrt(fan_in): ``Generator.random``, a product and a square root are exact IEEE
operations, so the same seed gives the same bits on every machine.

Example:
    >>> model = MODELS["qwen25_small"]
    >>> weights(model)["model.visual.patch_embed.proj.weight"].shape
    (64, 3, 2, 14, 14)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from support import vocabulary
from support.vocabulary import Vocabulary

PATCH = 14
MERGE = 2
WINDOW = 112
VISION_EPS = 1e-6
# CLIP's statistics, as in Qwen2-VL's preprocessor_config.json.
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """Dimensions and seed of one model.

    Attributes:
        family: transformers' model_type.
        vocabulary: Name of a function of ``support.vocabulary``.
        mrope_section: Rotary pairs for time, height, width; their sum is head_dim / 2.
        v_ffn: Width of the vision FFN.
        wa_pattern: Every n-th vision layer has full attention; 0 means all.
        tied: Whether the output matrix is the embedding matrix.
    """

    name: str
    family: Literal["qwen2_vl", "qwen2_5_vl"]
    seed: int
    vocabulary: Literal["small", "qwen", "bytes_only"] = "small"
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    mrope_section: tuple[int, int, int]
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    tied: bool = False
    v_hidden: int
    v_ffn: int
    v_layers: int
    v_heads: int
    wa_pattern: int = 0

    @property
    def vocab(self) -> Vocabulary:
        vocab: Vocabulary = getattr(vocabulary, self.vocabulary)()
        return vocab

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def full_attention_layers(self) -> list[int]:
        step = self.wa_pattern or 1
        return list(range(step - 1, self.v_layers, step))


MODELS = {
    model.name: model
    for model in (
        TinyModel(
            name="qwen25_small",
            family="qwen2_5_vl",
            seed=1,
            hidden=64,
            ffn=160,
            layers=3,
            heads=4,
            kv_heads=2,
            mrope_section=(1, 3, 4),
            v_hidden=64,
            v_ffn=128,
            v_layers=4,
            v_heads=2,
            wa_pattern=2,
        ),
        TinyModel(
            name="qwen25_head80",
            family="qwen2_5_vl",
            seed=2,
            hidden=96,
            ffn=172,
            layers=2,
            heads=3,
            kv_heads=1,
            mrope_section=(3, 5, 8),
            rms_norm_eps=1e-5,
            rope_theta=1e4,
            tied=True,
            v_hidden=160,
            v_ffn=108,
            v_layers=6,
            v_heads=2,
            wa_pattern=3,
        ),
        TinyModel(
            name="qwen2_small",
            family="qwen2_vl",
            seed=3,
            hidden=64,
            ffn=128,
            layers=2,
            heads=4,
            kv_heads=2,
            mrope_section=(1, 3, 4),
            v_hidden=64,
            v_ffn=192,
            v_layers=3,
            v_heads=4,
        ),
        TinyModel(
            name="qwen25_true_vocab",
            family="qwen2_5_vl",
            seed=4,
            vocabulary="qwen",
            hidden=32,
            ffn=96,
            layers=2,
            heads=2,
            kv_heads=1,
            mrope_section=(1, 3, 4),
            tied=True,
            v_hidden=64,
            v_ffn=96,
            v_layers=2,
            v_heads=2,
            wa_pattern=2,
        ),
    )
}

EMBEDDING_STD = 0.05
NORM_STD = 0.2
BIAS_STD = 0.2
# Above 1 so that a wrong mask or a wrong position is seen in the result.
QK_GAIN = 1.25
# Small so that the first vision norms see values beside which their epsilon counts.
PATCH_GAIN = 0.05


def _shapes(model: TinyModel) -> Iterator[tuple[str, tuple[int, ...]]]:
    m = model
    v = "model.visual."
    norm_bias = m.family == "qwen2_vl"

    def norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", (width,)
        if norm_bias:
            yield f"{name}.bias", (width,)

    def linear(name: str, n_out: int, n_in: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", (n_out, n_in)
        yield f"{name}.bias", (n_out,)

    yield v + "patch_embed.proj.weight", (m.v_hidden, 3, 2, PATCH, PATCH)
    for i in range(m.v_layers):
        block = f"{v}blocks.{i}."
        yield from norm(block + "norm1", m.v_hidden)
        yield from norm(block + "norm2", m.v_hidden)
        yield from linear(block + "attn.qkv", 3 * m.v_hidden, m.v_hidden)
        yield from linear(block + "attn.proj", m.v_hidden, m.v_hidden)
        if m.family == "qwen2_vl":
            yield from linear(block + "mlp.fc1", m.v_ffn, m.v_hidden)
            yield from linear(block + "mlp.fc2", m.v_hidden, m.v_ffn)
        else:
            yield from linear(block + "mlp.gate_proj", m.v_ffn, m.v_hidden)
            yield from linear(block + "mlp.up_proj", m.v_ffn, m.v_hidden)
            yield from linear(block + "mlp.down_proj", m.v_hidden, m.v_ffn)
    merged = m.v_hidden * MERGE * MERGE
    yield from norm(v + "merger.ln_q", m.v_hidden)
    yield from linear(v + "merger.mlp.0", merged, merged)
    yield from linear(v + "merger.mlp.2", m.hidden, merged)

    t = "model.language_model."
    n_kv = m.kv_heads * m.head_dim
    yield t + "embed_tokens.weight", (len(m.vocab), m.hidden)
    for i in range(m.layers):
        layer = f"{t}layers.{i}."
        yield from linear(layer + "self_attn.q_proj", m.hidden, m.hidden)
        yield from linear(layer + "self_attn.k_proj", n_kv, m.hidden)
        yield from linear(layer + "self_attn.v_proj", n_kv, m.hidden)
        yield layer + "self_attn.o_proj.weight", (m.hidden, m.hidden)
        yield layer + "mlp.gate_proj.weight", (m.ffn, m.hidden)
        yield layer + "mlp.up_proj.weight", (m.ffn, m.hidden)
        yield layer + "mlp.down_proj.weight", (m.hidden, m.ffn)
        yield layer + "input_layernorm.weight", (m.hidden,)
        yield layer + "post_attention_layernorm.weight", (m.hidden,)
    yield t + "norm.weight", (m.hidden,)
    if not m.tied:
        yield "lm_head.weight", (len(m.vocab), m.hidden)


def _is_norm(name: str) -> bool:
    owner = name.rsplit(".", 2)[-2]
    return "norm" in owner or owner == "ln_q"


def _mean_std(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if name.endswith(".bias"):
        return 0.0, BIAS_STD
    if _is_norm(name):
        return 1.0, NORM_STD
    if "embed_tokens" in name:
        return 0.0, EMBEDDING_STD
    gain = QK_GAIN if any(part in name for part in (".q_proj", ".k_proj", ".qkv")) else 1.0
    gain = PATCH_GAIN if "patch_embed" in name else gain
    return 0.0, gain / float(np.sqrt(np.prod(shape[1:])))


def weights(model: TinyModel) -> Weights:
    """Makes all parameters.

    Returns:
        transformers' parameter names to float32 arrays, in a fixed order.
    """
    return draw(_shapes(model), model.seed)


def draw(shapes: Iterable[tuple[str, tuple[int, ...]]], seed: int) -> Weights:
    """Draws parameters of these names and shapes."""
    rng = np.random.Generator(np.random.PCG64(seed))
    result = {}
    for name, shape in shapes:
        mean, std = _mean_std(name, shape)
        half_width = std * np.sqrt(3.0)
        values = (2.0 * rng.random(shape) - 1.0) * half_width + mean
        result[name] = values.astype(np.float32)
    return result


def sha256(arrays: Weights) -> str:
    """Digest of names, shapes and little-endian bytes, in order."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()


def picture(grid_h: int, grid_w: int, seed: int = 0) -> NDArray[np.uint8]:
    """Coloured blocks on a ramp with noise, made of integers only.

    Args:
        grid_h: Height in patches of 14 pixels.
        grid_w: Width in patches.
        seed: Any integer >= 0.

    Returns:
        uint8 [14 * grid_h, 14 * grid_w, 3].
    """
    return pixels(PATCH * grid_h, PATCH * grid_w, seed)


def pixels(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """As `picture`, with the size in pixels."""
    rng = np.random.Generator(np.random.PCG64((seed, height, width)))
    y, x = np.mgrid[:height, :width]
    ramp = 64 * y // height + 64 * x // width
    block = 20
    blocks = rng.integers(0, 112, (height // block + 1, width // block + 1, 3))
    coarse = blocks.repeat(block, 0).repeat(block, 1)[:height, :width]
    noise = rng.integers(0, 16, (height, width, 3))
    return (ramp[..., None] + coarse + noise).astype(np.uint8)


def patches(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Normalises and cuts a picture whose sides are multiples of 28 pixels.

    The order of rows and columns is that of transformers' Qwen2-VL image processor:
    rows in 2x2-merge order, columns (channel, frame, y, x).

    Args:
        image: uint8 [H, W, 3].

    Returns:
        float32 [H / 14 * W / 14, 1176].
    """
    height, width, _ = image.shape
    grid_h, grid_w = height // PATCH, width // PATCH
    scaled = image.astype(np.float32) / np.float32(255)
    normal = (scaled - np.array(IMAGE_MEAN, np.float32)) / np.array(IMAGE_STD, np.float32)
    frames = np.stack([normal.transpose(2, 0, 1)] * 2)
    cut = frames.reshape(
        1, 2, 3, grid_h // MERGE, MERGE, PATCH, grid_w // MERGE, MERGE, PATCH
    ).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return np.ascontiguousarray(cut.reshape(grid_h * grid_w, -1))


def window_sizes(grid_h: int, grid_w: int) -> list[int]:
    """Patches in each attention window of a picture, row by row."""
    step = WINDOW // PATCH
    return [
        min(step, grid_h - y) * min(step, grid_w - x)
        for y in range(0, grid_h, step)
        for x in range(0, grid_w, step)
    ]
