"""The tiny Qwen3-VL model as a Hugging Face folder. Layout: config.json of Qwen3-VL-2B-Instruct."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from support import checkpoint, qwen3, tiny

LIMITS = (65_536, 16_777_216)


def config(*, tied: bool = True) -> dict[str, Any]:
    """config.json."""
    vocab = qwen3.vocab()
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": tied,
        "image_token_id": vocab.id("<|image_pad|>"),
        "text_config": {
            "attention_bias": False,
            "head_dim": qwen3.HEAD,
            "hidden_act": "silu",
            "hidden_size": qwen3.HIDDEN,
            "intermediate_size": qwen3.FFN,
            "max_position_embeddings": 32_768,
            "num_attention_heads": qwen3.HEADS,
            "num_hidden_layers": qwen3.LAYERS,
            "num_key_value_heads": qwen3.KV_HEADS,
            "rms_norm_eps": qwen3.EPS,
            "rope_scaling": {
                "mrope_interleaved": True,
                "mrope_section": list(qwen3.MROPE_SECTION),
                "rope_type": "default",
            },
            "rope_theta": qwen3.ROPE_THETA,
            "vocab_size": len(vocab),
        },
        "vision_config": {
            "deepstack_visual_indexes": list(qwen3.DEEPSTACK),
            "depth": qwen3.V_LAYERS,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": qwen3.V_HIDDEN,
            "in_channels": 3,
            "intermediate_size": qwen3.V_FFN,
            "num_heads": qwen3.V_HEADS,
            "num_position_embeddings": qwen3.SIDE**2,
            "out_hidden_size": qwen3.HIDDEN,
            "patch_size": qwen3.PATCH,
            "spatial_merge_size": tiny.MERGE,
            "temporal_patch_size": 2,
        },
    }


def write(
    folder: Path,
    *,
    add_eos: bool = False,
    tied: bool = True,
    dtype: checkpoint.Dtype = "F32",
    text: Mapping[str, Any] = MappingProxyType({}),
    **vision: Any,
) -> Path:
    """Writes it.

    Args:
        folder: Made if missing.
        add_eos: Whether the tokenizer adds ``<|endoftext|>`` at the end of every text.
        tied: Whether the output matrix is the embedding matrix, as in the smaller models.
        dtype: Of all tensors.
        text: Entries of ``text_config`` that differ.
        vision: Entries of ``vision_config`` that differ.

    Returns:
        ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(qwen3.golden_weights())
    if not tied:
        weights |= tiny.draw([("lm_head.weight", (len(qwen3.vocab()), qwen3.HIDDEN))], 14)
    checkpoint.save(weights, folder / "model.safetensors", dtype)
    settings = config(tied=tied)
    settings["text_config"] |= text
    settings["vision_config"] |= vision
    checkpoint.write_json(folder / "config.json", settings)
    tokenizer = checkpoint.tokenizer(SimpleNamespace(vocab=qwen3.vocab()))  # type: ignore[arg-type]
    if add_eos:
        end = "<|endoftext|>"
        piece = {"Sequence": {"id": "A", "type_id": 0}}
        template = {
            "type": "TemplateProcessing",
            "single": [piece, {"SpecialToken": {"id": end, "type_id": 0}}],
            "pair": [piece, {"SpecialToken": {"id": end, "type_id": 0}}],
            "special_tokens": {end: {"id": end, "ids": [qwen3.vocab().id(end)], "tokens": [end]}},
        }
        inner = tokenizer["post_processor"]
        tokenizer["post_processor"] = {"type": "Sequence", "processors": [inner, template]}
    checkpoint.write_json(folder / "tokenizer.json", tokenizer)
    checkpoint.write_json(folder / "tokenizer_config.json", checkpoint.TOKENIZER_CONFIG)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "image_mean": list(qwen3.MEAN),
        "image_std": list(qwen3.STD),
        "merge_size": tiny.MERGE,
        "patch_size": qwen3.PATCH,
        "size": {"shortest_edge": LIMITS[0], "longest_edge": LIMITS[1]},
        "temporal_patch_size": 2,
    }
    checkpoint.write_json(folder / "preprocessor_config.json", processor)
    return folder
