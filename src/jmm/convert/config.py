"""What a checkpoint's config.json and preprocessor_config.json say, checked.

Sources: the config.json files of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and jina-embeddings-v4;
transformers' configuration classes (defaults, and the names that version 5 gives the rope).
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from jmm.convert.json_file import Section, is_number, read
from jmm.errors import ModelLoadError
from jmm.gguf_header import is_moderate

if TYPE_CHECKING:
    from pathlib import Path

Family: TypeAlias = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
FAMILIES: tuple[Family, ...] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")

# Per architecture: the family, and whether a multi-vector projector belongs to it.
ARCHITECTURES: dict[str, tuple[Family, bool]] = {
    "JinaEmbeddingsV4Model": ("qwen2_5_vl", True),
    "Qwen2VLForConditionalGeneration": ("qwen2_vl", False),
    "Qwen2_5_VLForConditionalGeneration": ("qwen2_5_vl", False),
    "Qwen3VLForConditionalGeneration": ("qwen3_vl", False),
    "ColQwen2": ("qwen2_vl", True),
    "ColQwen2_5": ("qwen2_5_vl", True),
    "ColQwen2ForRetrieval": ("qwen2_vl", True),
}
JINA_V4 = "JinaEmbeddingsV4Model"

_MERGE_SIZE = 2
_FRAMES = 2
_CHANNELS = 3
_PLAIN_ROPE = ("default", "mrope")
_TANH_GELU = "gelu_pytorch_tanh"


@dataclass(frozen=True)
class TextConfig:
    """Dimensions of the language model."""

    vocab_size: int
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float
    mrope_section: list[int]
    head_dim: int | None
    is_qwen3: bool = False

    @property
    def head(self) -> int:
        """Components of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def n_q(self) -> int:
        """Components of all queries of a token."""
        return self.head * self.heads

    @property
    def n_kv(self) -> int:
        """Components of all keys of a token."""
        return self.head * self.kv_heads


@dataclass(frozen=True)
class VisionConfig:
    """Dimensions of the vision tower.

    ``window`` and ``full_layers`` are None without windows; ``n_positions`` is None without a
    table of position embeddings, as in Qwen3-VL's towers, and ``deepstack`` then empty.
    """

    hidden: int
    ffn: int
    layers: int
    heads: int
    patch: int
    window: int | None
    full_layers: list[int] | None
    n_positions: int | None = None
    deepstack: tuple[int, ...] = ()

    @property
    def merged(self) -> int:
        """Components of the patches that make one token."""
        return self.hidden * _MERGE_SIZE**2


@dataclass(frozen=True)
class PictureConfig:
    """How pictures are prepared; the limits are areas in pixels, None where none is given."""

    image_mean: list[float]
    image_std: list[float]
    min_pixels: int | None
    max_pixels: int | None


@dataclass(frozen=True)
class Config:
    """A checkpoint's settings.

    Attributes:
        architecture: First entry of ``architectures``.
        family: Whose tensor layout it has.
        text: The language model.
        vision: The vision tower.
        projector_dim: Components of a token's vector; None if the config names none.
        has_projector: Whether the architecture has a multi-vector projector.
        dims: Legal values of ``truncate_dim``; empty for any.
        tasks: Names of its LoRA adapters; empty for none.
    """

    architecture: str
    family: Family
    text: TextConfig
    vision: VisionConfig
    projector_dim: int | None
    has_projector: bool
    dims: list[int]
    tasks: list[str]


def read_config(folder: Path) -> Config:
    """Reads config.json.

    Raises:
        ModelLoadError: It is missing, names another architecture, or a value cannot be used.
    """
    path = folder / "config.json"
    root = Section(path, read(path))
    names = root.values.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    name = root.one_of("architectures", ARCHITECTURES, first)
    family, has_projector = ARCHITECTURES[name]
    if "vlm_config" in root.values:  # transformers' ColQwen2
        root = root.section("vlm_config")
        found = root.one_of("model_type", FAMILIES, root.values.get("model_type"))
        family = cast("Family", found)
    text = root
    if "text_config" in root.values:
        inner = root.section("text_config")
        text = Section(path, {**root.values, **inner.values}, inner.prefix)
    is_jina = name == JINA_V4
    tasks = root.strings("task_names") if is_jina else []
    if not all(re.fullmatch(r"[\w-]+", task) for task in tasks):
        raise root.fail("task_names", "letters, digits, '-' and '_' are allowed in a name")
    return Config(
        name,
        family,
        _text(text, family),
        _vision(root.section("vision_config"), family),
        root.whole("multi_vector_projector_dim") if is_jina else None,
        has_projector,
        root.wholes("matryoshka_dims") if is_jina else [],
        tasks,
    )


def _text(values: Section, family: Family) -> TextConfig:
    heads, hidden = values.whole("num_attention_heads"), values.whole("hidden_size")
    is_qwen3 = family == "qwen3_vl"
    if is_qwen3:
        head_dim: int | None = values.whole("head_dim", 128)
        if values.values.get("attention_bias"):
            raise values.fail("attention_bias", "false is supported")
    else:
        head_dim = values.values.get("head_dim")
        if hidden % heads:
            raise values.fail("hidden_size", f"a multiple of the {heads} heads is needed")
        if head_dim not in (None, hidden // heads):
            raise values.fail("head_dim", f"{hidden // heads} is supported")
    half = (head_dim or hidden // heads) // 2
    if values.values.get("use_sliding_window"):
        raise values.fail("use_sliding_window", "false is supported")
    key = "rope_parameters" if "rope_parameters" in values.values else "rope_scaling"
    rope = values.section(key)
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
    if kind not in _PLAIN_ROPE:
        raise rope.fail(
            "rope_type" if "rope_type" in rope.values else "type",
            f"{' and '.join(_PLAIN_ROPE)} are supported",
        )
    section = rope.wholes("mrope_section")
    if len(section) != _CHANNELS or sum(section) != half:
        raise rope.fail("mrope_section", f"three numbers that sum to {half} are needed")
    if bool(rope.values.get("mrope_interleaved", is_qwen3)) is not is_qwen3:
        raise rope.fail("mrope_interleaved", f"{str(is_qwen3).lower()} is supported")
    return TextConfig(
        values.whole("vocab_size"),
        hidden,
        values.whole("intermediate_size"),
        values.whole("num_hidden_layers"),
        heads,
        values.whole("num_key_value_heads"),
        values.whole("max_position_embeddings"),
        values.number("rms_norm_eps"),
        (rope if "rope_theta" in rope.values else values).number("rope_theta"),
        section,
        head_dim,
        is_qwen3,
    )


def _vision(values: Section, family: Family) -> VisionConfig:
    for key, only in (
        ("spatial_merge_size", _MERGE_SIZE),
        ("temporal_patch_size", _FRAMES),
        ("in_channels", _CHANNELS),
        ("in_chans", _CHANNELS),
    ):
        if values.whole(key, only) != only:
            raise values.fail(key, f"{only} is supported")
    if family == "qwen3_vl":
        return _qwen3_vision(values)
    if family == "qwen2_vl":
        hidden = values.whole("embed_dim")
        ffn = int(hidden * values.number("mlp_ratio", 4))
        window, full_layers = None, None
    else:
        hidden, ffn = values.whole("hidden_size"), values.whole("intermediate_size")
        window, full_layers = values.whole("window_size", 112), _full_layers(values)
    layers, heads = values.whole("depth"), values.whole("num_heads")
    patch = values.whole("patch_size", 14)
    return VisionConfig(hidden, ffn, layers, heads, patch, window, full_layers)


def _qwen3_vision(values: Section) -> VisionConfig:
    if values.values.get("hidden_act", _TANH_GELU) != _TANH_GELU:
        raise values.fail("hidden_act", f"{_TANH_GELU!r} is supported")
    layers = values.whole("depth")
    n_positions = values.whole("num_position_embeddings")
    if math.isqrt(n_positions) ** 2 != n_positions:
        raise values.fail("num_position_embeddings", "a square is needed")
    deepstack = values.wholes("deepstack_visual_indexes")
    if any(index >= layers for index in deepstack) or len(set(deepstack)) != len(deepstack):
        raise values.fail("deepstack_visual_indexes", f"indices below {layers} are needed")
    if deepstack != sorted(deepstack):
        raise values.fail("deepstack_visual_indexes", "increasing indices are needed")
    return VisionConfig(
        values.whole("hidden_size"),
        values.whole("intermediate_size"),
        layers,
        values.whole("num_heads"),
        values.whole("patch_size", 16),
        None,
        None,
        n_positions,
        tuple(deepstack),
    )


def _full_layers(values: Section) -> list[int]:
    layers = values.wholes("fullatt_block_indexes")
    step = layers[0] + 1 if layers else 0
    if not layers or layers != list(range(step - 1, values.whole("depth"), step)):
        raise values.fail(
            "fullatt_block_indexes", "every n-th layer, counted from n - 1, is supported"
        )
    return layers


_PICTURES = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"


def has_pictures(folder: Path) -> bool:
    """Whether `read_pictures` finds a file there."""
    return any(os.path.exists(folder / name) for name in (_PICTURES, _PROCESSOR))


def read_pictures(folder: Path) -> PictureConfig:
    """Reads preprocessor_config.json, or processor_config.json as transformers 5 writes it.

    Raises:
        ModelLoadError: Neither is there, or a value cannot be used.
    """
    path = folder / _PICTURES
    if os.path.exists(path) or not os.path.exists(folder / _PROCESSOR):
        values = Section(path, read(path))
    else:
        path = folder / _PROCESSOR
        values = Section(path, read(path)).section("image_processor")
    limits = dict.fromkeys(("min_pixels", "max_pixels"))
    size = values.values.get("size")
    named: dict[str, Any] = size if isinstance(size, dict) else {}
    for key, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        if values.values.get(key) is not None:
            limits[key] = values.whole(key)
        elif edge in named:
            limits[key] = Section(path, named, f"{values.prefix}size.").whole(edge)
    least, most = limits["min_pixels"], limits["max_pixels"]
    if least is not None and most is not None and most < least:
        raise ModelLoadError(f"{path}: max_pixels is {most}, below min_pixels, {least}")
    return PictureConfig(
        _three(values, "image_mean", positive=False),
        _three(values, "image_std", positive=True),
        limits["min_pixels"],
        limits["max_pixels"],
    )


def _three(values: Section, key: str, *, positive: bool) -> list[float]:
    found = values.values.get(key)
    numbers = found if isinstance(found, list) and all(map(is_number, found)) else []
    sized = all(map(is_moderate, numbers))
    if len(numbers) != _CHANNELS or not sized or (positive and min(numbers) <= 0):
        above = " above 0" if positive else ""
        raise values.fail(key, f"three numbers{above}, of a size from 1e-6 to 1e6, are needed")
    return [float(n) for n in numbers]


def check_folder(folder: Path) -> None:
    """Raises ModelLoadError unless ``folder`` is a folder."""
    if not os.path.isdir(folder):
        raise ModelLoadError(
            f"{folder}: there is no such folder; a Hugging Face checkpoint is needed: config.json, "
            "tokenizer.json, preprocessor_config.json and *.safetensors"
        )
