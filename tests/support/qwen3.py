"""A tiny seeded Qwen3-VL model: weights with transformers' names, and the two GGUF files.

Names, keys and types of the files follow the converter of the pinned tree
(``conversion/qwen3vl.py``). As in the published models the sections of the rotary pairs leave
some over, which belong to time, and heads are wider than ``hidden / heads``.

Example:
    >>> weights()["model.visual.pos_embed.weight"].shape
    (25, 64)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support import gguf_writer, tiny, vocabulary
from support.tiny import Weights

NAME = "qwen3_small"
PATCH = 16
HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD = 48, 96, 4, 4, 2, 16
MROPE_SECTION = (4, 2, 2)
ROPE_THETA = 1e4
EPS = 1e-6
V_HIDDEN, V_FFN, V_LAYERS, V_HEADS = 64, 96, 4, 2
SIDE = 5
DEEPSTACK = (0, 2)
MEAN = STD = (0.5, 0.5, 0.5)
N_ELEM = 3 * 2 * PATCH * PATCH
# What transformers' names become; the module and then "weight" or "bias".
_TEXT_NAMES = gguf_writer.TEXT_NAMES | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
_VISION_NAMES = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
_MERGER_NAMES = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}


def vocab() -> vocabulary.Vocabulary:
    """The vocabulary, which Qwen3-VL shares with Qwen2.5-VL."""
    return vocabulary.small()


def _linear(name: str, n_out: int, n_in: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (n_out, n_in)
    yield f"{name}.bias", (n_out,)


def _merger(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    merged = V_HIDDEN * tiny.MERGE**2
    yield f"{name}.norm.weight", (width,)
    yield f"{name}.norm.bias", (width,)
    yield from _linear(f"{name}.linear_fc1", merged, merged)
    yield from _linear(f"{name}.linear_fc2", HIDDEN, merged)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    v = "model.visual."
    yield v + "patch_embed.proj.weight", (V_HIDDEN, 3, 2, PATCH, PATCH)
    yield v + "patch_embed.proj.bias", (V_HIDDEN,)
    yield v + "pos_embed.weight", (SIDE * SIDE, V_HIDDEN)
    for i in range(V_LAYERS):
        block = f"{v}blocks.{i}."
        for name in ("norm1", "norm2"):
            yield f"{block}{name}.weight", (V_HIDDEN,)
            yield f"{block}{name}.bias", (V_HIDDEN,)
        yield from _linear(block + "attn.qkv", 3 * V_HIDDEN, V_HIDDEN)
        yield from _linear(block + "attn.proj", V_HIDDEN, V_HIDDEN)
        yield from _linear(block + "mlp.linear_fc1", V_FFN, V_HIDDEN)
        yield from _linear(block + "mlp.linear_fc2", V_HIDDEN, V_FFN)
    yield from _merger(v + "merger", V_HIDDEN)
    for k in range(len(DEEPSTACK)):
        yield from _merger(f"{v}deepstack_merger_list.{k}", V_HIDDEN * tiny.MERGE**2)
    t = "model.language_model."
    yield t + "embed_tokens.weight", (len(vocab()), HIDDEN)
    for i in range(LAYERS):
        layer = f"{t}layers.{i}."
        yield layer + "self_attn.q_proj.weight", (HEADS * HEAD, HIDDEN)
        yield layer + "self_attn.k_proj.weight", (KV_HEADS * HEAD, HIDDEN)
        yield layer + "self_attn.v_proj.weight", (KV_HEADS * HEAD, HIDDEN)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
        yield layer + "self_attn.q_norm.weight", (HEAD,)
        yield layer + "self_attn.k_norm.weight", (HEAD,)
        yield layer + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, FFN)
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
    yield t + "norm.weight", (HIDDEN,)


def weights(seed: int = 11) -> Weights:
    """Makes all parameters, uniform as `tiny.weights` does.

    Returns:
        transformers' parameter names to float32 arrays, in a fixed order.
    """
    return tiny.draw(_shapes(), seed)


@lru_cache
def golden_weights() -> Weights:
    """`weights` of the seed that the golden file has."""
    return weights()


def _parts(name: str) -> tuple[int, str, str]:
    """Of ``list.3.module.kind``: the index, the module and the kind."""
    _, index, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    return int(index), module, kind


def _text_tensors(values: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    prefix = "model.language_model."
    for name, value in values.items():
        rest = name.removeprefix(prefix)
        if rest == name:
            continue
        if rest == "embed_tokens.weight":
            yield "token_embd.weight", value
        elif rest == "norm.weight":
            yield "output_norm.weight", value
        else:
            index, module, kind = _parts(rest)
            yield f"blk.{index}.{_TEXT_NAMES[module]}.{kind}", value


def _vision_tensors(values: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    prefix = "model.visual."
    for name, value in values.items():
        rest = name.removeprefix(prefix)
        if rest == name:
            continue
        if rest == "patch_embed.proj.weight":
            yield "v.patch_embd.weight", value[:, :, 0]
            yield "v.patch_embd.weight.1", value[:, :, 1]
        elif rest == "patch_embed.proj.bias":
            yield "v.patch_embd.bias", value
        elif rest == "pos_embed.weight":
            yield "v.position_embd.weight", value
        elif rest.startswith("merger."):
            _, module, kind = rest.split(".")
            yield f"{_MERGER_NAMES[module]}.{kind}", value
        else:
            index, module, kind = _parts(rest)
            if rest.startswith("blocks."):
                yield f"v.blk.{index}.{_VISION_NAMES[module]}.{kind}", value
            else:
                module = module.removeprefix("linear_")
                yield f"v.deepstack.{DEEPSTACK[index]}.{module}.{kind}", value


def write_text(
    values: Weights,
    path: Path,
    file_type: gguf_writer.FileType = "F32",
    *,
    name: str = NAME,
    add_eos: bool = False,
    keys: dict[str, Any] | None = None,
    extra: gguf_writer.Typed | None = None,
) -> Path:
    """Writes the language model.

    Args:
        values: What `weights` gives.
        path: File to write; its folder is made.
        file_type: Type of the matrices.
        name: ``general.name``.
        add_eos: Whether the vocabulary wants ``<|endoftext|>`` at the end.
        keys: Whole numbers that differ, by key without the architecture.
        extra: Further tensors.

    Returns:
        ``path``.
    """
    settings = {
        "block_count": LAYERS,
        "context_length": gguf_writer.CONTEXT_LENGTH,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "n_deepstack_layers": len(DEEPSTACK),
    } | (keys or {})
    writer = gguf_writer.begin(path, "qwen3vl", "model", name, file_type)
    for key, value in settings.items():
        writer.add_uint32(f"qwen3vl.{key}", value)
    writer.add_rope_dimension_sections([*MROPE_SECTION, 0])
    writer.add_rope_freq_base(ROPE_THETA)
    writer.add_layer_norm_rms_eps(EPS)
    gguf_writer.add_vocabulary(writer, vocab(), eos="<|endoftext|>" if add_eos else "<|im_end|>")
    writer.add_add_eos_token(add_eos)
    gguf_writer.add_tensors(writer, _text_tensors(values), file_type)
    gguf_writer.add_typed(writer, extra)
    gguf_writer.finish(writer)
    return path


def write_mmproj(
    values: Weights,
    path: Path,
    file_type: gguf_writer.FileType = "F32",
    *,
    extra: gguf_writer.Typed | None = None,
) -> Path:
    """Writes the vision tower; arguments as of `write_text`."""
    writer = gguf_writer.begin(path, "clip", "mmproj", NAME, file_type)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwen3vl_merger")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(HIDDEN)
    writer.add_vision_image_size(SIDE * PATCH)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_spatial_merge_size(tiny.MERGE)
    writer.add_vision_embedding_length(V_HIDDEN)
    writer.add_vision_feed_forward_length(V_FFN)
    writer.add_vision_block_count(V_LAYERS)
    writer.add_vision_head_count(V_HEADS)
    writer.add_vision_image_mean(list(MEAN))
    writer.add_vision_image_std(list(STD))
    writer.add_vision_attention_layernorm_eps(EPS)
    writer.add_vision_is_deepstack_layers([i in DEEPSTACK for i in range(V_LAYERS)])
    gguf_writer.add_tensors(writer, _vision_tensors(values), file_type)
    gguf_writer.add_typed(writer, extra)
    gguf_writer.finish(writer)
    return path
