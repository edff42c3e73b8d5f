"""Writes random models of Qwen2.5-VL-3B's true widths as GGUF, for all benchmarks.

    python benchmarks/models.py [--layers few] [--types F16 Q4_K_M] [--models FOLDER]

A model is a pair of files, named by its layers and types, and written once. Types: F32, F16,
BF16, Q8_0, Q4_K_M. As llama.cpp's converter and quantizer do it, Q8_0 leaves the vision FFN's
down projection in F16 (its rows of 3420 are no multiple of 32), and Q4_K_M holds Q4_K and Q6_K
in the language model and comes with the Q8_0 tower. The patch embedding is F16 for F16, else F32.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from common import kquants
from common.shape import HELP_LAYERS, Outlines, TrueWidth, Weights, parse_layers, true_width
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from support import gguf_writer, tiny

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_K_M")
# Part of the names: files of another generator are left alone.
VERSION = 1

Tensors = Iterator[tuple[str, NDArray[np.float32]]]


def default_folder() -> Path:
    given = os.environ.get("JMM_BENCH_MODELS")
    return Path(given) if given else Path(tempfile.gettempdir()) / "jmm-bench-models"


def pair(folder: Path, layers: tuple[int, int], file_type: str) -> tuple[Path, Path]:
    """The two files of a model, language model first; written if they are missing."""
    if file_type not in TYPES:
        raise ValueError(f"the type is {file_type!r}; allowed: {', '.join(TYPES)}")
    model = true_width(layers)
    tower_type = "Q8_0" if file_type == "Q4_K_M" else file_type
    stem = f"{model.name}-v{VERSION}"
    text = folder / f"{stem}-language{layers[0]}-{file_type}.gguf"
    tower = folder / f"{stem}-vision{layers[1]}-{tower_type}.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not text.exists():
        _write(_text_writer(model), text, model, file_type)
    if not tower.exists():
        _write(_tower_writer(model), tower, model, tower_type)
    return text, tower


def _text_writer(model: TrueWidth) -> gguf.GGUFWriter:
    vocab = model.vocab
    writer = gguf.GGUFWriter(None, "qwen2vl")
    writer.add_type("model")
    writer.add_block_count(model.layers)
    writer.add_context_length(gguf_writer.CONTEXT_LENGTH)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_rope_dimension_sections([*model.mrope_section, 0])
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_layer_norm_rms_eps(model.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(vocab.tokens))
    writer.add_token_types(list(vocab.types))
    writer.add_token_merges([""])  # llama.cpp requires the key
    writer.add_eos_token_id(vocab.id("<|im_end|>"))
    writer.add_pad_token_id(vocab.id("<|endoftext|>"))
    writer.add_bos_token_id(vocab.id("<|endoftext|>"))
    writer.add_add_bos_token(False)
    return writer


def _tower_writer(model: TrueWidth) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(None, "clip")
    writer.add_type("mmproj")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwen2.5vl_merger")
    writer.add_vision_use_silu(True)
    writer.add_vision_n_wa_pattern(model.wa_pattern)
    writer.add_vision_projection_dim(model.hidden)
    writer.add_vision_image_size(560)
    writer.add_vision_patch_size(tiny.PATCH)
    writer.add_vision_embedding_length(model.v_hidden)
    writer.add_vision_feed_forward_length(model.v_ffn)
    writer.add_vision_block_count(model.v_layers)
    writer.add_vision_head_count(model.v_heads)
    writer.add_vision_image_mean(list(tiny.IMAGE_MEAN))
    writer.add_vision_image_std(list(tiny.IMAGE_STD))
    writer.add_vision_attention_layernorm_eps(tiny.VISION_EPS)
    return writer


def _write(writer: gguf.GGUFWriter, path: Path, model: TrueWidth, file_type: str) -> None:
    """Writes one tensor after the other, so that memory holds the largest alone."""
    is_text = writer.arch == "qwen2vl"

    def tensors(weights: Any) -> Tensors:
        return gguf_writer.text_tensors(weights) if is_text else gguf_writer.vision_tensors(weights)

    print(f"writing {path.name}", flush=True)
    writer.add_name(f"random {model.name}")
    writer.add_file_type(gguf.LlamaFileType[_ftype(file_type)])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, value in tensors(Outlines(model)):
        kind = _tensor_type(name, value.shape, file_type, model)
        shape = gguf.quant_shape_to_byte_shape(value.shape, kind)
        size = int(np.prod(shape))
        writer.add_tensor_info(name, value.shape, np.dtype(np.float32), size, raw_dtype=kind)
    draft = path.with_suffix(".part")
    writer.write_header_to_file(draft)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, value in tensors(Weights(model)):
        kind = _tensor_type(name, value.shape, file_type, model)
        writer.write_tensor_data(_quantized(np.ascontiguousarray(value), kind))
    writer.close()
    draft.replace(path)


def _ftype(file_type: str) -> str:
    return "ALL_F32" if file_type == "F32" else f"MOSTLY_{file_type}"


def _tensor_type(name: str, shape: tuple[int, ...], file_type: str, model: TrueWidth) -> Type:
    if len(shape) <= 1 or name.endswith("_norm.weight"):
        return Type.F32
    if name.startswith("v.patch_embd."):
        return Type.F16 if file_type == "F16" else Type.F32
    if file_type == "Q4_K_M":
        return _q4_k_m(name, model.layers)
    if file_type == "Q8_0" and shape[-1] % 32:
        return Type.F16
    return Type[file_type]


def _q4_k_m(name: str, n_layers: int) -> Type:
    """llama.cpp's choice: more bits for the tied output, and for some values and FFN outputs."""
    if name == "token_embd.weight":
        return Type.Q6_K
    _, index, module, _ = name.split(".")
    layer, eighth = int(index), n_layers // 8
    favoured = layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2
    return Type.Q6_K if favoured and module in ("attn_v", "ffn_down") else Type.Q4_K


def _quantized(value: NDArray[np.float32], kind: Type) -> NDArray[Any]:
    if kind == Type.Q4_K:
        return kquants.q4_k(value)
    if kind == Type.Q6_K:
        return kquants.q6_k(value)
    return gguf.quants.quantize(value, kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", default="few", help=HELP_LAYERS)
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--models", type=Path, default=default_folder())
    arguments = parser.parse_args()
    for file_type in arguments.types:
        for path in pair(arguments.models, parse_layers(arguments.layers), file_type):
            print(f"{path.stat().st_size / 1e9:6.2f} GB  {path.name}")


if __name__ == "__main__":
    main()
