"""The tiny models of further families as Hugging Face folders, for llama.cpp's converter alone.

Parameters have the names of published checkpoints. In the place of a tokenizer lies ``words.json``,
the GGUF keys of the vocabulary, which `upstream.run` writes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from support import checkpoint
from support.family import FAMILIES, Array, Family
from support.vision_family import MEAN, STD, VISION_FAMILIES, VisionFamily


@dataclass(frozen=True)
class Layout:
    """How a family's checkpoints are laid out.

    Attributes:
        architecture: First of ``architectures`` in config.json.
        names: What a parameter's name begins with in transformers' base class, and in a checkpoint.
        text, vision: ``architectures`` of the inner settings.
        processor: Settings of the processor beside those of the family.
    """

    architecture: str
    names: Mapping[str, str]
    text: str | None = None
    vision: str | None = None
    processor: Mapping[str, Any] | None = None


_MODEL = {"": "model."}
LAYOUTS = {
    "bert": Layout("BertModel", {}),
    "embeddinggemma": Layout("Gemma3TextModel", {}),
    "embeddinggemma2": Layout("EmbeddingGemma2Model", {}),
    "embeddinggemma2_vision": Layout("EmbeddingGemma2Model", {}),
    "gemma3": Layout(
        "Gemma3ForConditionalGeneration",
        {
            "language_model.": "language_model.model.",
            "vision_tower.": "vision_tower.vision_model.",
        },
        processor={"image_seq_length": 16},
    ),
    "internvl": Layout("InternVLChatModel", _MODEL, "Qwen2ForCausalLM", "InternVisionModel"),
    "lfm2": Layout("Lfm2ForCausalLM", _MODEL),
    "llava": Layout("LlavaForConditionalGeneration", {"language_model.": "language_model.model."}),
    "mamba": Layout("MambaForCausalLM", {"": "backbone."}),
    "smolvlm": Layout("SmolVLMForConditionalGeneration", _MODEL, "LlamaForCausalLM"),
}


def families() -> dict[str, Family]:
    """All of them."""
    return {**FAMILIES, **VISION_FAMILIES}


def write(
    name: str, arrays: Mapping[str, Array], folder: Path, vision: Mapping[str, Any] | None = None
) -> Path:
    """Writes one.

    Args:
        name: Of the family.
        arrays: Its parameters.
        folder: Made if missing.
        vision: Entries of ``vision_config`` that differ.

    Returns:
        ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    family, layout = families()[name], LAYOUTS[name]
    settings = getattr(transformers, family.net).config_class(**family.config).to_dict()
    settings["architectures"] = [layout.architecture]
    text = settings.get("text_config", settings)
    text["max_position_embeddings"] = int(family.keys["context_length"])
    for key, architecture in (("text_config", layout.text), ("vision_config", layout.vision)):
        if architecture is not None:
            settings[key]["architectures"] = [architecture]
    if vision is not None:
        settings["vision_config"] |= vision
    if isinstance(family, VisionFamily):
        processor = {"image_mean": MEAN, "image_std": STD, **family.processor_arguments}
        checkpoint.write_json(
            folder / "preprocessor_config.json", processor | dict(layout.processor or {})
        )
        settings["min_dynamic_patch"] = processor.get("min_patches", 0)
        settings["max_dynamic_patch"] = processor.get("max_patches", 0)
    checkpoint.write_json(folder / "config.json", settings)
    stored = {
        _name(key, layout.names): value for key, value in arrays.items() if key not in family.extra
    }
    checkpoint.save(stored, folder / "model.safetensors")
    words = family.words()
    checkpoint.write_json(folder / "words.json", words.keys)
    # Gemma's converter counts the tokens.
    vocabulary = {str(i): i for i in range(words.size)}
    checkpoint.write_json(
        folder / "tokenizer.json", {"model": {"vocab": vocabulary}, "added_tokens": []}
    )
    _write_modules(family, arrays, folder)
    return folder


def _name(name: str, names: Mapping[str, str]) -> str:
    for theirs, ours in names.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _write_modules(family: Family, arrays: Mapping[str, Array], folder: Path) -> None:
    """What sentence-transformers adds: how rows are pooled, and dense modules."""
    if "pooling_type" not in family.keys:
        return
    paths = {"1_Pooling": "Pooling"}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {f"pooling_mode_{'cls_token' if family.pooling == 'cls' else 'mean_tokens'}": True}
    checkpoint.write_json(folder / "1_Pooling" / "config.json", pooling)
    for name in family.extra:
        number = name.removeprefix("dense_").removesuffix(".weight")
        module = folder / f"{number}_Dense"
        paths[module.name] = "Dense"
        checkpoint.save({"linear.weight": arrays[name]}, module / "model.safetensors")
        n_out, n_in = arrays[name].shape
        checkpoint.write_json(module / "config.json", {"in_features": n_in, "out_features": n_out})
    kinds = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in paths.items()
    ]
    checkpoint.write_json(folder / "modules.json", kinds)
