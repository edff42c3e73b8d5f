"""Writes tiny models as Hugging Face folders, with the layout and names of real checkpoints.

Sources: the file headers and config.json of jina-embeddings-v4 (weights named as transformers 4.49
did, adapters as 4.52 does, ``adapters/adapter_model.safetensors`` with every task); the config.json
of Qwen2-VL and Qwen2.5-VL; transformers 5's ``save_pretrained``.

Example:
    >>> folder = write(tiny.MODELS["qwen25_small"], tmp_path / "jina", JINA)
    >>> sorted(path.name for path in folder.iterdir())[:2]
    ['adapters', 'config.json']
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from support import tiny
from support.tiny import TinyModel, Weights

Dtype = Literal["F32", "F16", "BF16"]

TASKS = ("retrieval", "text-matching", "code")
MODULES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
PROJECTOR = "multi_vector_projector"
PROJECTOR_DIM = 24
RANK = 4
ALPHA = 6.0  # not the rank, so that a forgotten scale is seen
DIMS = (16, 32, 64)
MIN_PIXELS, MAX_PIXELS = 3136, 602_112

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Kind:
    """How a folder is laid out.

    Attributes:
        architecture: None for the model's own.
        text, visual, output: What the names of the weights start with.
        projector: Name of the multi-vector projector, None without one.
        has_adapters: Whether there is a folder of LoRA adapters.
        flat_config: Whether the text settings stand at the top of config.json.
    """

    architecture: str | None = None
    text: str = "model.language_model."
    visual: str = "model.visual."
    output: str = ""
    projector: str | None = None
    has_adapters: bool = False
    flat_config: bool = False


PLAIN = Kind()
OLD = Kind(text="model.", visual="visual.", flat_config=True)
JINA = Kind("JinaEmbeddingsV4Model", "model.", "visual.", "", PROJECTOR, has_adapters=True)
COLQWEN = Kind("ColQwen2_5", "language_model.", "visual.", "", "custom_text_proj")
# Older ones, whose names colpali-engine changes as it loads them.
COLQWEN_OLD = Kind(
    "ColQwen2_5", "model.", "visual.", "", "base_model.model.custom_text_proj", flat_config=True
)
COLQWEN_HF = Kind(
    "ColQwen2ForRetrieval",
    "vlm.model.language_model.",
    "vlm.model.visual.",
    "vlm.",
    "embedding_proj_layer",
)

_OWN = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
}


def round_to(values: NDArray[np.float32], dtype: Dtype) -> NDArray[np.float32]:
    """The numbers that a file of ``dtype`` holds in place of ``values``."""
    if dtype == "BF16":
        bits = values.view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        return bits.astype(np.uint32).view(np.float32)
    return values.astype(np.float16).astype(np.float32) if dtype == "F16" else values


def save(tensors: Mapping[str, NDArray[np.float32]], path: Path, dtype: Dtype = "F32") -> None:
    """Writes a safetensors file; the live comparison has transformers read it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, values in tensors.items():
        start = len(data)
        values = np.ascontiguousarray(values, np.float32)
        if dtype == "BF16":
            data += (round_to(values, dtype).view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            data += values.astype("<f2" if dtype == "F16" else "<f4").tobytes()
        offsets = [start, len(data)]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _random(shape: tuple[int, ...], seed: tuple[int, ...], std: float) -> NDArray[np.float32]:
    rng = np.random.Generator(np.random.PCG64(seed))
    return ((2 * rng.random(shape) - 1) * std * np.sqrt(3)).astype(np.float32)


def projector(model: TinyModel) -> Weights:
    """The multi-vector projector, by jina-embeddings-v4's names."""
    std = 1 / np.sqrt(model.hidden)
    return {
        f"{PROJECTOR}.weight": _random((PROJECTOR_DIM, model.hidden), (model.seed, 7, 0), std),
        f"{PROJECTOR}.bias": _random((PROJECTOR_DIM,), (model.seed, 7, 1), 0.2),
    }


def lora_modules(names: Iterable[str]) -> list[str]:
    """The language model's modules that adapters change, of all weights' names."""
    base = [name.removesuffix(".weight") for name in names if name.endswith("_proj.weight")]
    return [name for name in base if ".visual." not in name]


def lora(model: TinyModel, task: str, weights: Weights) -> dict[str, tuple[Any, Any]]:
    """``{module: (A, B)}`` of one task; a module is named as in ``weights``, without ".weight"."""
    text = lora_modules(weights)
    assert len(text) == len(MODULES) * model.layers
    pairs = {}
    for i, module in enumerate([*text, PROJECTOR]):
        n_out, n_in = (weights | projector(model))[f"{module}.weight"].shape
        seed = (model.seed, TASKS.index(task), i)
        pairs[module] = (
            _random((RANK, n_in), (*seed, 0), 1 / np.sqrt(n_in)),
            _random((n_out, RANK), (*seed, 1), 0.3 / np.sqrt(RANK)),
        )
    return pairs


def merged(model: TinyModel, weights: Weights, task: str, dtype: Dtype = "F32") -> Weights:
    """The weights of one task, adapter added, with the projector; in double, then rounded once."""
    result = {
        name: round_to(values, dtype) for name, values in (weights | projector(model)).items()
    }
    for module, pair in lora(model, task, weights).items():
        low, high = (round_to(values, dtype).astype(np.float64) for values in pair)
        name = f"{module}.weight"
        result[name] = (result[name] + ALPHA / RANK * (high @ low)).astype(np.float32)
    return result


def rename(name: str, kind: Kind) -> str:
    """A weight's name in a folder of that kind."""
    if name.startswith("model.language_model."):
        return kind.text + name.removeprefix("model.language_model.")
    if name.startswith("model.visual."):
        return kind.visual + name.removeprefix("model.visual.")
    if name.startswith(PROJECTOR):
        return f"{kind.projector}{name.removeprefix(PROJECTOR)}"
    return kind.output + name


def config(model: TinyModel, kind: Kind) -> dict[str, Any]:
    """config.json."""
    text = {
        "vocab_size": len(model.vocab),
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "max_position_embeddings": 32768,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": model.rope_theta,
        "rope_scaling": {"mrope_section": list(model.mrope_section), "rope_type": "default"},
        "use_sliding_window": False,
        "tie_word_embeddings": model.tied,
    }
    vision: dict[str, Any] = {
        "depth": model.v_layers,
        "num_heads": model.v_heads,
        "patch_size": tiny.PATCH,
        "spatial_merge_size": tiny.MERGE,
        "temporal_patch_size": 2,
        "in_channels": 3,
    }
    if model.family == "qwen2_vl":
        vision |= {"embed_dim": model.v_hidden, "hidden_size": model.hidden}
        vision["mlp_ratio"] = model.v_ffn // model.v_hidden
    else:
        vision |= {
            "hidden_size": model.v_hidden,
            "intermediate_size": model.v_ffn,
            "out_hidden_size": model.hidden,
            "window_size": tiny.WINDOW,
            "fullatt_block_indexes": model.full_attention_layers,
        }
    ids = {
        "bos_token_id": model.vocab.id("<|endoftext|>"),
        "eos_token_id": model.vocab.id("<|im_end|>"),
        "image_token_id": model.vocab.id("<|image_pad|>"),
        "video_token_id": model.vocab.id("<|video_pad|>"),
        "vision_start_token_id": model.vocab.id("<|vision_start|>"),
        "vision_end_token_id": model.vocab.id("<|vision_end|>"),
    }
    result: dict[str, Any] = {
        "architectures": [kind.architecture or _OWN[model.family]],
        "model_type": model.family,
        "vision_config": vision,
        **ids,
    }
    result |= text if kind.flat_config else {"text_config": text}
    if kind.has_adapters:
        result |= {
            "single_vector_pool_strategy": "mean",
            "multi_vector_projector_dim": PROJECTOR_DIM,
            "matryoshka_dims": [dim for dim in DIMS if dim <= model.hidden],
            "task_names": list(TASKS),
        }
    if kind is COLQWEN_HF:
        inner = {key: value for key, value in result.items() if key != "architectures"}
        return {
            "architectures": result["architectures"],
            "model_type": "colqwen2",
            "embedding_dim": PROJECTOR_DIM,
            "vlm_config": inner,
        }
    return result


def tokenizer(model: TinyModel) -> dict[str, Any]:
    """tokenizer.json."""
    vocab = model.vocab
    n_base = vocab.id("<|endoftext|>")
    added = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token not in ("<tool_call>", "</tool_call>") and "fim" not in token,
        }
        for i, token in enumerate(vocab.tokens)
        if i >= n_base and not token.startswith("[PAD")
    ]
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, {**level, "use_regex": False}],
        },
        "post_processor": {**level, "use_regex": False},
        "decoder": {**level, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(vocab.tokens[:n_base])},
            "merges": vocab.merges,
        },
    }


PREPROCESSOR = {
    "min_pixels": MIN_PIXELS,
    "max_pixels": MAX_PIXELS,
    "patch_size": tiny.PATCH,
    "temporal_patch_size": 2,
    "merge_size": tiny.MERGE,
    "image_mean": list(tiny.IMAGE_MEAN),
    "image_std": list(tiny.IMAGE_STD),
    "image_processor_type": "Qwen2VLImageProcessor",
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "Qwen2Tokenizer",
    "add_bos_token": False,
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "chat_template": "{% for message in messages %}{{ message }}{% endfor %}",
}
ADAPTER_CONFIG = {
    "peft_type": "LORA",
    "task_type": "FEATURE_EXTRACTION",
    "r": RANK,
    "lora_alpha": ALPHA,
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "exclude_modules": ".*visual.*",
}


def write(
    model: TinyModel,
    folder: Path,
    kind: Kind = PLAIN,
    dtype: Dtype = "F32",
    *,
    shards: int = 1,
    weights: Weights | None = None,
) -> Path:
    """Writes a checkpoint.

    Args:
        model: Dimensions and seed.
        folder: Made if missing.
        kind: Its layout.
        dtype: Of all tensors.
        shards: Files that the weights are spread over; above 1 with an index.
        weights: Parameters; default ``tiny.weights(model)``.

    Returns:
        ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = tiny.weights(model) if weights is None else weights
    stored = dict(arrays)
    if kind.projector is not None:
        stored |= projector(model)
    named = {rename(name, kind): values for name, values in stored.items()}
    if shards == 1:
        save(named, folder / "model.safetensors", dtype)
    else:
        weight_map = {}
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = dict(list(named.items())[i::shards])
            save(part, folder / file, dtype)
            weight_map |= dict.fromkeys(part, file)
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)
    write_json(folder / "config.json", config(model, kind))
    write_json(folder / "tokenizer.json", tokenizer(model))
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    if kind.has_adapters:
        write_adapters(model, folder, arrays, dtype)
    return folder


def write_adapters(model: TinyModel, folder: Path, weights: Weights, dtype: Dtype) -> None:
    """Writes the folder ``adapters``."""
    pairs = {}
    for task in TASKS:
        for module, both in lora(model, task, weights).items():
            for side, values in zip("AB", both, strict=True):
                pairs[f"base_model.model.{module}.lora_{side}.{task}.weight"] = values
    save(pairs, folder / "adapters" / "adapter_model.safetensors", dtype)
    write_json(folder / "adapters" / "adapter_config.json", ADAPTER_CONFIG)


def write_adapter_alone(
    folder: Path, pairs: Mapping[str, tuple[Any, Any]], base: str = "org/base"
) -> Path:
    """Writes an adapter that is a checkpoint of its own, as PEFT's ``save_pretrained`` does.

    Args:
        folder: Made if missing.
        pairs: ``{module: (A, B)}``, by the names of the model that PEFT was given.
        base: Name of that model.

    Returns:
        ``folder``.
    """
    named = {
        f"base_model.model.{module}.lora_{side}.weight": values
        for module, both in pairs.items()
        for side, values in zip("AB", both, strict=True)
    }
    save(named, folder / "adapter_model.safetensors")
    settings = ADAPTER_CONFIG | {"base_model_name_or_path": base}
    write_json(folder / "adapter_config.json", settings)
    return folder


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file."""
    text = json.dumps(value, ensure_ascii=False)
    path.write_bytes(text.encode("utf-8", "backslashreplace"))  # a lone surrogate as JSON spells it
