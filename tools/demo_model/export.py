"""The trained model for transformers and for jmm.

>>> write_transformers(model, folder / "hf")
>>> write_gguf(model, folder, "Q8_0")
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from demo_model import network, vocabulary
from support import gguf_writer, reference, tiny
from support.gguf_writer import FileType
from support.tiny import TinyModel, Weights
from support.vocabulary import Vocabulary

NAME = "jmm-demo"
# A square picture is brought to 3 x 3 tokens; others to about as many: 640 x 480 gives 2 x 3,
# 168 x 84 gives 2 x 4, 1000 x 30 gives 1 x 18.
MIN_PIXELS, MAX_PIXELS = 6500, 8000
METADATA = {
    "general.description": (
        "A small Qwen2.5-VL trained on drawn shapes, words and digits, for trying out jmm."
    ),
    "general.license": "mit",
    "jmm.profile": "qwen2.5-vl",
}
PROJECTOR = "multi_vector_projector"

_TEXT = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
}
_VISION = {"patch_embed": "patch_embed.proj", "ln_q": "merger.ln_q"}
_MERGER = {"merge0": "merger.mlp.0", "merge2": "merger.mlp.2"}


@dataclass(frozen=True, kw_only=True)
class DemoShape(TinyModel):
    """`TinyModel` with the demo model's own vocabulary."""

    @property
    def vocab(self) -> Vocabulary:
        return vocabulary.load()


def tiny_shape(shape: network.Shape) -> DemoShape:
    """The dimensions as the writers of GGUF files and configurations take them."""
    return DemoShape(
        name=NAME,
        family="qwen2_5_vl",
        seed=0,
        hidden=shape.hidden,
        ffn=shape.ffn,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        mrope_section=shape.mrope_section,
        rms_norm_eps=network.EPS,
        rope_theta=shape.rope_theta,
        tied=True,
        v_hidden=shape.v_hidden,
        v_ffn=shape.v_ffn,
        v_layers=shape.v_layers,
        v_heads=shape.v_heads,
        wa_pattern=2,
    )


def weights(model: network.DemoModel) -> Weights:
    """The parameters under transformers' names; the projector's under `PROJECTOR`."""
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    result: Weights = {}
    for name, value in state.items():
        stem, kind = name.rsplit(".", 1)
        if stem == "embed":
            result["model.language_model.embed_tokens.weight"] = value
        elif stem == "norm":
            result["model.language_model.norm.weight"] = value
        elif stem == "multi":
            result[f"{PROJECTOR}.{kind}"] = value
        elif stem.startswith("blocks."):
            _, layer, part = stem.split(".", 2)
            part = _TEXT.get(part, part)
            result[f"model.language_model.layers.{layer}.{part}.{kind}"] = value
        elif stem == "vision.patch_embed":
            # Both frames are the same picture: each gets half of the trained kernel.
            kernel = value.reshape(len(value), 3, 1, network.PATCH, network.PATCH) / 2
            result["model.visual.patch_embed.proj.weight"] = kernel.repeat(2, axis=2)
        elif stem.startswith("vision.blocks."):
            _, _, layer, part = stem.split(".", 3)
            block = f"model.visual.blocks.{layer}"
            if part == "q":
                qkv = [state[f"vision.blocks.{layer}.{letter}.{kind}"] for letter in "qkv"]
                result[f"{block}.attn.qkv.{kind}"] = np.concatenate(qkv)
            elif part not in ("k", "v"):
                part = "attn.proj" if part == "proj" else part
                result[f"{block}.{part}.{kind}"] = value
        else:
            part = stem.removeprefix("vision.")
            part = _MERGER.get(part) or _VISION[part]
            result[f"model.visual.{part}.{kind}"] = value
    return {name: np.ascontiguousarray(value, np.float32) for name, value in result.items()}


def _backbone(model: network.DemoModel) -> Weights:
    return {k: v for k, v in weights(model).items() if not k.startswith(PROJECTOR)}


def reference_model(model: network.DemoModel) -> reference.Reference:
    """transformers' own class with these weights, loaded strictly."""
    return reference.Reference(tiny_shape(model.shape), _backbone(model))


def write_transformers(model: network.DemoModel, folder: Path) -> None:
    """Writes a checkpoint folder: model, tokenizer, processor's numbers, projector."""
    import json

    import torch
    from safetensors.torch import save_file
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    shape = tiny_shape(model.shape)
    reference_model(model).net.save_pretrained(folder)
    vocab = shape.vocab
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=reference.tokenizer(shape, True),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.save_pretrained(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": network.PATCH,
        "merge_size": network.MERGE,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "image_mean": list(tiny.IMAGE_MEAN),
        "image_std": list(tiny.IMAGE_STD),
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1), "utf-8")
    head = {name: torch.from_numpy(value) for name, value in _projector(model).items()}
    save_file(head, folder / f"{PROJECTOR}.safetensors")
    if len(vocab) != model.shape.n_tokens:
        raise ValueError(f"{len(vocab)} tokens, the model has {model.shape.n_tokens}")


def _projector(model: network.DemoModel) -> Weights:
    return {k: v for k, v in weights(model).items() if k.startswith(PROJECTOR)}


def write_gguf(model: network.DemoModel, folder: Path, file_type: FileType) -> list[Path]:
    """Writes ``demo-text.gguf``, with the multi-vector head, and ``demo-mmproj.gguf``.

    Args:
        model: The trained model.
        folder: Where to.
        file_type: Type of the matrices.
    """
    shape, values = tiny_shape(model.shape), weights(model)
    options: dict[str, Any] = {"name": NAME, "metadata": METADATA}
    return [
        gguf_writer.write_text(shape, values, folder / "demo-text.gguf", file_type, **options),
        gguf_writer.write_mmproj(
            shape,
            values,
            folder / "demo-mmproj.gguf",
            file_type,
            pixels=(MIN_PIXELS, MAX_PIXELS),
            **options,
        ),
    ]


def write_projector(model: network.DemoModel, path: Path) -> Path:
    """Writes the multi-vector head alone, in F32."""
    writer = gguf.GGUFWriter(path, "qwen2vl")
    writer.add_name(NAME)
    for name, value in _projector(model).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
