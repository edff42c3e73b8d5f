"""Tiny seeded models of families whose towers take tiles, written as two GGUF files.

Example:
    >>> VISION_FAMILIES["gemma3"].tile
    56
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from support import family, gguf_writer, words
from support.family import Array, Family

MEAN = STD = (0.5, 0.5, 0.5)
N_VISION_LAYERS = 2
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 72,
    "num_hidden_layers": N_VISION_LAYERS,
    "num_attention_heads": 2,
}
_TEXT: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PATCH = 14
_SUFFIXES = (".weight", ".bias", ".input_min", ".input_max", ".output_min", ".output_max")


@dataclass(frozen=True, kw_only=True)
class VisionFamily(Family):
    """One model with a tower; the fields of `Family` are of the whole, ``keys`` of the text.

    Attributes:
        projector: ``clip.projector_type``.
        tile: Pixels of a tile's side.
        language: Prefix of the language model's parameters.
        processor: transformers' PIL image processor: module and class.
        processor_arguments: Of the processor.
        vision_keys: Further keys of the mmproj file, without ``clip.``.
        vision_rename: What llama.cpp's converter changes beside the names of the tower.
        image_token: Stands for a picture's rows.
        begin_token: Before them.
        end_token: After them.
        dropped: Part of the names of parameters that the converter leaves out.
    """

    projector: str
    tile: int
    language: str
    processor: tuple[str, str]
    processor_arguments: Mapping[str, Any]
    vision_keys: Mapping[str, Any]
    vision_rename: family.Rename
    image_token: str
    begin_token: str = "<start_of_image>"
    end_token: str = "<end_of_image>"
    dropped: str = "-"

    @property
    def n_layers(self) -> int:
        return int(self.config["text_config"]["num_hidden_layers"])


def write(model: VisionFamily, arrays: Mapping[str, Array], folder: Path) -> tuple[Path, Path]:
    """Writes both files in F32.

    Returns:
        Paths of the language model and of the tower.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = {
        name.removeprefix(model.language): value
        for name, value in arrays.items()
        if name.startswith(model.language)
    }
    tower = {name: value for name, value in arrays.items() if not name.startswith(model.language)}
    return (
        family.write(model, text, folder / f"{model.name}.gguf"),
        _write_tower(model, tower, folder / f"{model.name}-mmproj.gguf"),
    )


def _write_tower(model: VisionFamily, arrays: Mapping[str, Array], path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    vision = model.config["vision_config"]
    keys = {
        "has_vision_encoder": True,
        "projector_type": model.projector,
        "vision.projection_dim": model.config["text_config"]["hidden_size"],
        "vision.image_size": model.tile,
        "vision.patch_size": PATCH,
        "vision.embedding_length": vision["hidden_size"],
        "vision.feed_forward_length": vision["intermediate_size"],
        "vision.block_count": N_VISION_LAYERS,
        "vision.attention.head_count": vision["num_attention_heads"],
        "vision.image_mean": list(model.processor_arguments.get("image_mean", MEAN)),
        "vision.image_std": list(model.processor_arguments.get("image_std", STD)),
        **model.vision_keys,
    }
    for key, value in keys.items():
        family.add_key(writer, f"clip.{key}", value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, N_VISION_LAYERS)
    for original, original_value in arrays.items():
        if model.dropped in original:
            continue
        name, value = model.vision_rename(original, original_value)
        found = names.get_name(name, try_suffixes=_SUFFIXES)
        found = found or names.get_name(f"model.{name}", try_suffixes=_SUFFIXES)
        writer.add_tensor(found or name, np.ascontiguousarray(value, np.float32))
    gguf_writer.finish(writer)
    return path


def _permuted(value: Array, n_head: int) -> Array:
    """Rows of a rotary projection in llama.cpp's order: pairs next to each other."""
    width = len(value) // n_head
    return value.reshape(n_head, 2, width // 2, -1).swapaxes(1, 2).reshape(value.shape)


def _llama(name: str, value: Array) -> tuple[str, Array]:
    if "self_attn.q_proj" in name:
        return name, _permuted(value, _TEXT["num_attention_heads"])
    if "self_attn.k_proj" in name:
        return name, _permuted(value, _TEXT["num_key_value_heads"])
    return name, value


def _in_vision_model(name: str) -> str:
    return name.replace("vision_tower.", "vision_tower.vision_model.", 1)


def _gemma3_tower(name: str, value: Array) -> tuple[str, Array]:
    name = _in_vision_model(name).replace("projection_weight", "projection.weight")
    return name, value + 1 if "soft_emb_norm" in name else value


def _plain_tower(name: str, value: Array) -> tuple[str, Array]:
    return name, value


def _llava_tower(name: str, value: Array) -> tuple[str, Array]:
    # As the scripts of LLaVA 1.5 have named the two since 2023.
    for theirs, ours in (("linear_1", "mm.0"), ("linear_2", "mm.2")):
        name = name.replace(f"multi_modal_projector.{theirs}", ours)
    return _in_vision_model(name), value


def _gemma4_tower(name: str, value: Array) -> tuple[str, Array]:
    name = name.replace("vision_tower.encoder.", "vision_model.model.")
    name = name.replace(".linear.weight", ".weight")
    if name.endswith("position_embedding_table"):
        name += ".weight"
    if name.endswith("input_proj.weight"):
        side = round((value.shape[1] // 3) ** 0.5)
        value = value.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
    return name, value


def _internvl_tower(name: str, value: Array) -> tuple[str, Array]:
    for theirs, ours in (("layer_norm", 0), ("linear_1", 1), ("linear_2", 3)):
        name = name.replace(f"multi_modal_projector.{theirs}", f"mm.model.mlp.{ours}")
    if name.endswith(("lambda_1", "lambda_2", "position_embeddings")):
        name += ".weight"
    return name, value


def _text_keys(**further: Any) -> dict[str, Any]:
    return {
        "context_length": 2048,
        "embedding_length": _TEXT["hidden_size"],
        "block_count": _TEXT["num_hidden_layers"],
        "feed_forward_length": _TEXT["intermediate_size"],
        "attention.head_count": _TEXT["num_attention_heads"],
        "attention.head_count_kv": _TEXT["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e4,
        **further,
    }


def _llama_keys(n_vocab: int) -> dict[str, Any]:
    head = _TEXT["hidden_size"] // _TEXT["num_attention_heads"]
    sizes = ("rope.dimension_count", "attention.key_length", "attention.value_length")
    return _text_keys(**dict.fromkeys(sizes, head), vocab_size=n_vocab)


_CLIP = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_GEMMA_TEXT = {**family.GEMMA, "use_bidirectional_attention": False, "sliding_window": 64}
_SIGLIP_KEYS = {"vision.attention.layer_norm_epsilon": 1e-6, "use_gelu": True}

VISION_FAMILIES = {
    model.name: model
    for model in (
        VisionFamily(
            name="gemma3",
            architecture="gemma3",
            enum="GEMMA3",
            net="Gemma3Model",
            config={
                "text_config": _GEMMA_TEXT,
                "vision_config": _VISION
                | {"image_size": 112, "patch_size": PATCH, "vision_use_head": False},
                "mm_tokens_per_image": 16,
                "image_token_id": words.sentencepiece().ids["<image_soft_token>"],
            },
            words=words.sentencepiece_begun,
            keys={
                **family.gemma_keys(_GEMMA_TEXT),
                "attention.sliding_window": 64,
            },
            norm_mean=1.0,
            rename=family.gemma,
            seed=21,
            projector="gemma3",
            tile=112,
            language="language_model.",
            processor=("gemma3", "Gemma3ImageProcessorPil"),
            processor_arguments={"size": {"height": 112, "width": 112}},
            vision_keys={**_SIGLIP_KEYS, "vision.projector.scale_factor": 2},
            vision_rename=_gemma3_tower,
            image_token="<image_soft_token>",
        ),
        VisionFamily(
            name="smolvlm",
            architecture="llama",
            enum="LLAMA",
            net="SmolVLMModel",
            config={
                "text_config": _TEXT
                | {
                    "vocab_size": words.smolvlm().size,
                    "model_type": "llama",
                    "rms_norm_eps": 1e-6,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
                },
                "vision_config": _VISION | {"image_size": 56, "patch_size": PATCH},
                "scale_factor": 2,
                "image_token_id": words.smolvlm().ids["<image>"],
            },
            words=words.smolvlm,
            keys=_llama_keys(words.smolvlm().size),
            rename=_llama,
            seed=22,
            projector="idefics3",
            tile=56,
            language="text_model.",
            processor=("smolvlm", "SmolVLMImageProcessorPil"),
            processor_arguments={
                "size": {"longest_edge": 168},
                "max_image_size": {"longest_edge": 56},
            },
            vision_keys={
                **_SIGLIP_KEYS,
                "vision.projector.scale_factor": 2,
                "vision.preproc_image_size": 168,
            },
            vision_rename=_plain_tower,
            image_token="<image>",
        ),
        VisionFamily(
            name="llava",
            architecture="llama",
            enum="LLAMA",
            net="LlavaModel",
            config={
                "text_config": _TEXT
                | {
                    "vocab_size": words.sentencepiece().size,
                    "model_type": "llama",
                    "rms_norm_eps": 1e-6,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
                },
                "vision_config": _VISION
                | {
                    "model_type": "clip_vision_model",
                    "image_size": 56,
                    "patch_size": PATCH,
                    "projection_dim": 32,
                },
                "image_token_id": words.sentencepiece().ids["<image_soft_token>"],
            },
            words=words.sentencepiece_begun,
            keys=_llama_keys(words.sentencepiece().size),
            rename=_llama,
            seed=23,
            projector="mlp",
            tile=56,
            language="language_model.",
            processor=("llava", "LlavaImageProcessorPil"),
            processor_arguments={
                "size": {"shortest_edge": 56},
                "crop_size": {"height": 56, "width": 56},
                **_CLIP,
            },
            vision_keys={"vision.attention.layer_norm_epsilon": 1e-5},
            vision_rename=_llava_tower,
            image_token="<image_soft_token>",
            dropped="post_layernorm",
        ),
        VisionFamily(
            name="embeddinggemma2_vision",
            architecture="gemma-embedding2",
            enum="GEMMA_EMBEDDING",
            net="EmbeddingGemma2Model",
            config={
                "text_config": family.GEMMA2_EMBEDDING,
                "vision_config": _VISION
                | {
                    "num_key_value_heads": 2,
                    "head_dim": 16,
                    "patch_size": 4,
                    "position_embedding_size": 210,
                    "use_clipped_linears": True,
                    "standardize": True,
                },
                "audio_config": None,
                "image_token_id": words.gemma4().ids["<|image|>"],
            },
            words=words.gemma4,
            keys=family.gemma2_embedding_keys(family.GEMMA2_EMBEDDING),
            rename=family.gemma2_embedding,
            seed=25,
            projector="gemma4v",
            tile=224,
            language="language_model.",
            processor=("gemma4", "Gemma4ImageProcessorPil"),
            processor_arguments={
                "patch_size": 4,
                "max_soft_tokens": 70,
                "pooling_kernel_size": 3,
                "image_mean": (0.0, 0.0, 0.0),
                "image_std": (1.0, 1.0, 1.0),
            },
            vision_keys={
                "vision.attention.layer_norm_epsilon": 1e-6,
                "vision.patch_size": 4,
                "vision.image_max_pixels": 70 * 12 * 12,
            },
            vision_rename=_gemma4_tower,
            image_token="<|image|>",
            begin_token="<|image>",
            end_token="<image|>",
        ),
        VisionFamily(
            name="internvl",
            architecture="qwen2",
            enum="QWEN2",
            net="InternVLModel",
            config={
                "text_config": _TEXT
                | {
                    "vocab_size": words.internvl().size,
                    "model_type": "qwen2",
                    "rms_norm_eps": 1e-6,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
                },
                "vision_config": _VISION
                | {
                    "image_size": [56, 56],
                    "patch_size": [PATCH, PATCH],
                    "attention_bias": True,
                },
                "image_token_id": words.internvl().ids["<IMG_CONTEXT>"],
                "downsample_ratio": 0.5,
            },
            words=words.internvl,
            keys=_text_keys(),
            seed=24,
            projector="internvl",
            tile=56,
            language="language_model.",
            processor=("got_ocr2", "GotOcr2ImageProcessorPil"),
            processor_arguments={
                "size": {"height": 56, "width": 56},
                "crop_to_patches": True,
                "min_patches": 1,
                "max_patches": 6,
                **_CLIP,
            },
            vision_keys={
                "vision.attention.layer_norm_epsilon": 1e-6,
                "use_gelu": True,
                "vision.projector.scale_factor": 2,
                "vision.preproc_min_tiles": 1,
                "vision.preproc_max_tiles": 6,
            },
            vision_rename=_internvl_tower,
            image_token="<IMG_CONTEXT>",
        ),
    )
}
