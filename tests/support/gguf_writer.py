"""Writes a tiny model as the two GGUF files that llama.cpp and libmtmd read.

Names, keys and types follow the converter of the pinned tree
(``conversion/qwenvl.py``, ``conversion/base.py``), except that the vision epsilon is
the reference's constant 1e-6 and not the text model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from support import tiny
from support.tiny import TinyModel, Weights
from support.vocabulary import Vocabulary

FileType = Literal["F32", "F16", "BF16", "Q8_0"]
FILE_TYPES: tuple[FileType, ...] = ("F32", "F16", "BF16", "Q8_0")
CONTEXT_LENGTH = 32768

# Tensors by name, with the type of each: "F32", "F16", "BF16", "Q8_0", "I32", ...
Typed = Mapping[str, tuple[NDArray[np.float32], str]]

_FTYPE = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
TEXT_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_VISION_NAMES = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.proj": "attn_out",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}


def text_tensors(weights: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """llama.cpp's names for the language model's parameters."""
    prefix = "model.language_model."
    for name, value in weights.items():
        if name == "lm_head.weight":
            yield "output.weight", value
        if name.startswith("multi_vector_projector."):
            yield name, value
        if not name.startswith(prefix):
            continue
        name = name.removeprefix(prefix)
        if name == "embed_tokens.weight":
            yield "token_embd.weight", value
        elif name == "norm.weight":
            yield "output_norm.weight", value
        else:
            _, index, rest = name.split(".", 2)
            module, kind = rest.rsplit(".", 1)
            yield f"blk.{index}.{TEXT_NAMES[module]}.{kind}", value


def vision_tensors(
    weights: Weights, weight_flat: bool = False
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """libmtmd's names for the vision tower's parameters."""
    prefix = "model.visual."
    for name, value in weights.items():
        if not name.startswith(prefix):
            continue
        name = name.removeprefix(prefix)
        if name == "patch_embed.proj.weight":
            yield "v.patch_embd.weight", value[:, :, 0]
            yield "v.patch_embd.weight.1", value[:, :, 1]
            if weight_flat:
                yield "v.patch_embd.weight_flat", value.reshape(len(value), -1)
        elif name.startswith("merger.ln_q."):
            yield f"v.post_ln.{name.rsplit('.', 1)[1]}", value
        elif name.startswith("merger.mlp."):
            yield f"mm.{name.removeprefix('merger.mlp.')}", value
        else:
            _, index, rest = name.split(".", 2)
            module, kind = rest.rsplit(".", 1)
            if module == "attn.qkv":
                for letter, part in zip("qkv", np.split(value, 3), strict=True):
                    yield f"v.blk.{index}.attn_{letter}.{kind}", part
            else:
                yield f"v.blk.{index}.{_VISION_NAMES[module]}.{kind}", value


def _tensor_type(name: str, value: NDArray[np.float32], file_type: FileType) -> str:
    if value.ndim <= 1 or name.endswith("_norm.weight"):
        return "F32"
    if name.startswith("v.patch_embd."):
        return "F16" if file_type == "F16" else "F32"
    if name.startswith("multi_vector_projector.") and file_type == "Q8_0":
        return "F16"
    if file_type == "Q8_0" and value.shape[-1] % 32:
        return "F16"
    return file_type


def add_tensors(
    writer: gguf.GGUFWriter,
    tensors: Iterator[tuple[str, NDArray[np.float32]]],
    file_type: FileType,
) -> None:
    """Adds tensors, each in the type that a file of ``file_type`` has for it."""
    for name, value in tensors:
        qtype = gguf.GGMLQuantizationType[_tensor_type(name, value, file_type)]
        data = gguf.quants.quantize(np.ascontiguousarray(value), qtype)
        writer.add_tensor(name, data, raw_dtype=qtype)


def add_typed(writer: gguf.GGUFWriter, tensors: Typed | None) -> None:
    """Adds tensors with the type of each."""
    for name, (value, type_name) in (tensors or {}).items():
        if type_name.startswith("I"):
            writer.add_tensor(name, np.ascontiguousarray(value, f"int{type_name[1:]}"))
            continue
        qtype = gguf.GGMLQuantizationType[type_name]
        data = gguf.quants.quantize(np.ascontiguousarray(value, np.float32), qtype)
        writer.add_tensor(name, data, raw_dtype=qtype)


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def begin(
    path: Path, arch: str, kind: str, name: str, file_type: FileType, extra: Any = None
) -> Any:
    """A writer with what every file begins with; ``extra`` holds further string keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type(kind)
    writer.add_name(name)
    for key, value in (extra or {}).items():
        writer.add_string(key, value)
    writer.add_file_type(_FTYPE[file_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    return writer


def add_vocabulary(writer: gguf.GGUFWriter, vocab: Vocabulary, *, eos: str = "<|im_end|>") -> None:
    """Adds a vocabulary of the Qwen2 family."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(vocab.tokens))
    writer.add_token_types(list(vocab.types))
    if vocab.merges:
        writer.add_token_merges(list(vocab.merges))
    else:
        # llama.cpp requires the key; GGUFWriter drops an empty array.
        writer.add_token_merges([""])
    writer.add_eos_token_id(vocab.id(eos))
    writer.add_pad_token_id(vocab.id("<|endoftext|>"))
    writer.add_bos_token_id(vocab.id("<|endoftext|>"))
    writer.add_add_bos_token(False)


def write_text(
    model: TinyModel,
    weights: Weights,
    path: Path,
    file_type: FileType = "F32",
    *,
    name: str | None = None,
    metadata: dict[str, str] | None = None,
    extra: Typed | None = None,
) -> Path:
    """Writes the language model.

    Args:
        model: Dimensions.
        weights: What ``tiny.weights(model)`` gives.
        path: File to write; its folder is made.
        file_type: Type of the matrices; vectors stay F32, and Q8_0 rows that are no
            multiple of 32 fall back to F16, as does the projector.
        name: ``general.name``; default is the model's.
        metadata: Further string keys.
        extra: Further tensors.

    Returns:
        ``path``.
    """
    vocab = model.vocab
    writer = begin(path, "qwen2vl", "model", name or model.name, file_type, metadata)
    writer.add_block_count(model.layers)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_rope_dimension_sections([*model.mrope_section, 0])
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_layer_norm_rms_eps(model.rms_norm_eps)
    add_vocabulary(writer, vocab)
    add_tensors(writer, text_tensors(weights), file_type)
    add_typed(writer, extra)
    finish(writer)
    return path


def write_mmproj(
    model: TinyModel,
    weights: Weights,
    path: Path,
    file_type: FileType = "F32",
    *,
    weight_flat: bool = False,
    pixels: tuple[int, int] | None = None,
    name: str | None = None,
    metadata: dict[str, str] | None = None,
    extra: Typed | None = None,
) -> Path:
    """Writes the vision tower.

    Args:
        model: Dimensions.
        weights: What ``tiny.weights(model)`` gives.
        path: File to write; its folder is made.
        file_type: As in `write_text`; the patch embedding is F16 for F16, else F32.
        weight_flat: Also write ``v.patch_embd.weight_flat``, [v_hidden, 1176] with
            columns (channel, frame, y, x).
        pixels: Least and greatest area of a picture, to be written as the file's limits.
        name: ``general.name``; default is the model's.
        metadata: Further string keys.
        extra: Further tensors.

    Returns:
        ``path``.
    """
    is_qwen25 = model.family == "qwen2_5_vl"
    writer = begin(path, "clip", "mmproj", name or model.name, file_type, metadata)
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(model.hidden)
    writer.add_vision_image_size(560)
    writer.add_vision_patch_size(tiny.PATCH)
    if pixels is not None:
        writer.add_vision_min_pixels(pixels[0])
        writer.add_vision_max_pixels(pixels[1])
    writer.add_vision_embedding_length(model.v_hidden)
    # The converter writes Qwen2-VL's output width here, and nothing reads it.
    writer.add_vision_feed_forward_length(model.v_ffn if is_qwen25 else model.hidden)
    writer.add_vision_block_count(model.v_layers)
    writer.add_vision_head_count(model.v_heads)
    writer.add_vision_image_mean(list(tiny.IMAGE_MEAN))
    writer.add_vision_image_std(list(tiny.IMAGE_STD))
    if is_qwen25:
        writer.add_clip_projector_type("qwen2.5vl_merger")
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(model.wa_pattern)
    else:
        writer.add_clip_projector_type("qwen2vl_merger")
    writer.add_vision_attention_layernorm_eps(tiny.VISION_EPS)
    add_tensors(writer, vision_tensors(weights, weight_flat), file_type)
    add_typed(writer, extra)
    finish(writer)
    return path


def write_projector(path: Path, tensors: Typed) -> Path:
    """Writes a file of nothing but the multi-vector projector.

    Returns:
        ``path``.
    """
    writer = gguf.GGUFWriter(path, "projector")
    add_typed(writer, tensors)
    finish(writer)
    return path


def write_adapter(
    path: Path,
    pairs: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]],
    *,
    alpha: float,
    file_type: str = "F32",
    settings: Mapping[str, Any] | None = None,
    extra: Typed | None = None,
) -> Path:
    """Writes a LoRA adapter, as llama.cpp's ``convert_lora_to_gguf.py`` does.

    Args:
        path: File to write.
        pairs: Tensor name to ``(a [rank, n_in], b [n_out, rank])``.
        alpha: The change is ``alpha / rank * b @ a``.
        file_type: Type of the tensors.
        settings: Keys that differ: a str, float, int, bool or list; None leaves the key out.
        extra: Further tensors.

    Returns:
        ``path``.
    """
    keys = {
        "general.architecture": "qwen2vl",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alpha),
    } | dict(settings or {})
    writer = gguf.GGUFWriter(path, keys.pop("general.architecture"))
    for key, value in keys.items():
        add = {str: writer.add_string, float: writer.add_float32, bool: writer.add_bool}.get(
            type(value), writer.add_array if isinstance(value, list) else writer.add_uint32
        )
        if value is not None:
            add(key, value)
    for name, (low, high) in pairs.items():
        tensors = {f"{name}.lora_a": (low, file_type), f"{name}.lora_b": (high, file_type)}
        add_typed(writer, tensors)
    add_typed(writer, extra)
    finish(writer)
    return path
