"""What a checkpoint's config.json says, checked.

Sources: the config.json files of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and jina-embeddings-v4;
transformers' configuration classes (defaults, and the names that version 5 gives the rope), and
what its models read beside them (``is_causal`` in its ``masking_utils``, ``head_dim``).
A setting that would change vectors and is not honoured is refused; others are not looked at. What
is absent has transformers' default.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from jmm.bundle import MANIFEST
from jmm.convert.json_file import Section, read
from jmm.errors import ModelLoadError
from jmm.gguf_header import MERGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping
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
COLQWEN2_HF = "ColQwen2ForRetrieval"

_FRAMES = 2
_CHANNELS = 3
_PLAIN_ROPE = ("default", "mrope")
_VISION_ROPE = ("default", "axial")
_VISION_ROPE_THETA = 10_000.0
_ACTIVATION = "silu"
_VISION_ACTIVATIONS: dict[Family, str] = {
    "qwen2_vl": "quick_gelu",
    "qwen2_5_vl": "silu",
    "qwen3_vl": "gelu_pytorch_tanh",
}
# Of transformers' classes; a configuration that it has saved may lack what equals them.
_QWEN2_TEXT: dict[str, Any] = {
    "vocab_size": 152_064,
    "hidden_size": 8192,
    "intermediate_size": 29_568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "mrope_section": [16, 24, 24],
}
_TEXT_DEFAULTS: dict[Family, dict[str, Any]] = {
    "qwen2_vl": _QWEN2_TEXT,
    "qwen2_5_vl": _QWEN2_TEXT,
    "qwen3_vl": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e5,
        "mrope_section": [24, 20, 20],
    },
}
_TEXT_ONLY: dict[str, object] = {
    "hidden_act": _ACTIVATION,
    "use_sliding_window": False,
}
# What the weights show of the language model.
_SHOWN = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
_VISION_DEFAULTS: dict[Family, dict[str, Any]] = {
    "qwen2_vl": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "patch_size": 14},
    "qwen2_5_vl": {
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "num_heads": 16,
        "patch_size": 14,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
    "qwen3_vl": {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "patch_size": 16,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
# Other weights than those that are read, or the same rounded as they are loaded.
_OTHER_WEIGHTS = ("quantization_config", "compression_config", "transformers_weights")
# By their ids the reference tells where a picture stands in a sequence.
_MARKERS = {
    "image_token_id": "<|image_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


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
        return self.hidden * MERGE_SIZE**2


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
        markers: ``{token: id}`` of those around pictures, where the config tells them.
        name: What transformers has noted as the model's name or path, None where it has not.
    """

    architecture: str
    family: Family
    text: TextConfig
    vision: VisionConfig
    projector_dim: int | None
    has_projector: bool
    dims: list[int]
    tasks: list[str]
    markers: Mapping[str, int]
    name: str | None = None


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
    for key in _OTHER_WEIGHTS:
        if root.values.get(key) is not None:
            raise root.fail(key, "weights as model.safetensors has them are supported")
    if not has_projector:  # transformers' own classes, which it chooses by this
        root.only("model_type", family)
    projector_dim = root.whole("embedding_dim", 128) if name == COLQWEN2_HF else None
    if "vlm_config" in root.values:  # transformers' ColQwen2
        root = root.section("vlm_config")
        found = root.one_of("model_type", FAMILIES, root.values.get("model_type"))
        family = cast("Family", found)
    is_jina = name == JINA_V4
    if is_jina:
        root.only("single_vector_pool_strategy", "mean")
    tasks = root.strings("task_names") if is_jina else []
    if not all(re.fullmatch(r"[\w-]+", task) for task in tasks):
        raise root.fail("task_names", "letters, digits, '-' and '_' are allowed in a name")
    language = _text(_language(root), family)
    if is_jina:
        projector_dim = root.whole("multi_vector_projector_dim")
        root.only("truncate_dim", language.hidden)
    dims = root.wholes("matryoshka_dims") if is_jina else []
    if not all(1 <= dim <= language.hidden for dim in dims):
        raise root.fail("matryoshka_dims", f"numbers from 1 to hidden_size, {language.hidden}")
    return Config(
        name,
        family,
        language,
        _vision(root.section("vision_config"), family, language),
        projector_dim,
        has_projector,
        dims,
        tasks,
        {
            token: root.whole(key)
            for key, token in _MARKERS.items()
            if root.values.get(key) is not None
        },
        noted if isinstance(noted := root.values.get("_name_or_path"), str) else None,
    )


def _language(root: Section) -> Section:
    """The language model's settings: text_config where there is one, else the top.

    Beside a text_config transformers reads none of them at the top; what an older version has left
    there counts only where the weights show whether it is right.
    """
    if root.values.get("text_config") is None:
        return root
    inner = root.section("text_config")
    shown = {key: root.values[key] for key in _SHOWN if key in root.values}
    return Section(root.path, {**shown, **inner.values}, inner.prefix)


def _rope(values: Section) -> Section:
    """The object with the rotary positions' settings, of which transformers takes the older."""
    key = "rope_scaling" if values.values.get("rope_scaling") else "rope_parameters"
    if values.values.get(key) is None:
        return Section(values.path, {}, f"{values.prefix}{key}.")
    return values.section(key)


def _plain_rope(values: Section, kinds: tuple[str, ...]) -> Section:
    """As `_rope`, of a kind without scaling."""
    rope = _rope(values)
    key = "rope_type" if "rope_type" in rope.values else "type"
    if rope.values.get(key, "default") not in kinds:
        raise rope.fail(key, f"{' and '.join(kinds)} are supported")
    for layers, of_layers in rope.values.items():
        if isinstance(of_layers, dict):
            raise rope.fail(layers, "one object for all layers is supported")
    for place in (rope, values):
        place.only("partial_rotary_factor", 1.0)
    return rope


def _text(values: Section, family: Family) -> TextConfig:
    default = _TEXT_DEFAULTS[family]
    heads = values.whole("num_attention_heads", default["num_attention_heads"])
    hidden = values.whole("hidden_size", default["hidden_size"])
    is_qwen3 = family == "qwen3_vl"
    head_dim: int | None = None
    if is_qwen3:
        head_dim = values.whole("head_dim", default["head_dim"])
        values.only("attention_bias", False)
    else:
        if hidden % heads:
            raise values.fail("hidden_size", f"a multiple of the {heads} heads is needed")
        if values.values.get("head_dim") is not None:
            head_dim = values.whole("head_dim")
            values.only("head_dim", hidden // heads)
    for key, only in _TEXT_ONLY.items():
        values.only(key, only)
    values.only("is_causal", True, takes_null=False)
    kv_heads = heads
    if values.values.get("num_key_value_heads", 0) is not None:
        kv_heads = values.whole("num_key_value_heads", default["num_key_value_heads"])
    if heads % kv_heads:
        raise values.fail("num_key_value_heads", f"a divisor of the {heads} heads is needed")
    kinds = values.values.get("layer_types")
    if kinds is not None and set(values.strings("layer_types")) - {"full_attention"}:
        raise values.fail("layer_types", "'full_attention' is supported")
    rope = _plain_rope(values, _PLAIN_ROPE)
    half = (head_dim or hidden // heads) // 2
    section = rope.wholes("mrope_section", default["mrope_section"])
    if len(section) != _CHANNELS or sum(section) != half:
        raise rope.fail("mrope_section", f"three numbers that sum to {half} are needed")
    if bool(rope.values.get("mrope_interleaved", is_qwen3)) is not is_qwen3:
        raise rope.fail("mrope_interleaved", f"{str(is_qwen3).lower()} is supported")
    theta = rope if "rope_theta" in rope.values else values
    return TextConfig(
        values.whole("vocab_size", default["vocab_size"]),
        hidden,
        values.whole("intermediate_size", default["intermediate_size"]),
        values.whole("num_hidden_layers", default["num_hidden_layers"]),
        heads,
        kv_heads,
        values.whole("max_position_embeddings", default["max_position_embeddings"]),
        values.number("rms_norm_eps", default["rms_norm_eps"]),
        theta.number("rope_theta", default["rope_theta"]),
        section,
        head_dim,
        is_qwen3,
    )


def _vision(values: Section, family: Family, language: TextConfig) -> VisionConfig:
    for key, only in (
        ("spatial_merge_size", MERGE_SIZE),
        ("temporal_patch_size", _FRAMES),
        ("in_channels", _CHANNELS),
        ("in_chans", _CHANNELS),
    ):
        values.only(key, only)
    values.only("hidden_act", _VISION_ACTIVATIONS[family])
    values.only("hidden_size" if family == "qwen2_vl" else "out_hidden_size", language.hidden)
    for place in (_plain_rope(values, _VISION_ROPE), values):
        place.only("rope_theta", _VISION_ROPE_THETA)
    values = replace(values, values={**_VISION_DEFAULTS[family], **values.values})
    if family == "qwen3_vl":
        return _qwen3_vision(values)
    if family == "qwen2_vl":
        hidden = values.whole("embed_dim")
        ffn = int(hidden * values.number("mlp_ratio"))
        window, full_layers = None, None
    else:
        hidden, ffn = values.whole("hidden_size"), values.whole("intermediate_size")
        window, full_layers = values.whole("window_size"), _full_layers(values)
    layers, heads = values.whole("depth"), _vision_heads(values, hidden)
    patch = values.whole("patch_size")
    if window is not None and window % (patch * MERGE_SIZE):
        raise values.fail("window_size", f"a multiple of {patch * MERGE_SIZE} is supported")
    return VisionConfig(hidden, ffn, layers, heads, patch, window, full_layers)


def _qwen3_vision(values: Section) -> VisionConfig:
    layers = values.whole("depth")
    n_positions = values.whole("num_position_embeddings")
    if math.isqrt(n_positions) ** 2 != n_positions:
        raise values.fail("num_position_embeddings", "a square is needed")
    deepstack = values.wholes("deepstack_visual_indexes")
    if any(index >= layers for index in deepstack) or len(set(deepstack)) != len(deepstack):
        raise values.fail("deepstack_visual_indexes", f"indices below {layers} are needed")
    if deepstack != sorted(deepstack):
        raise values.fail("deepstack_visual_indexes", "increasing indices are needed")
    hidden = values.whole("hidden_size")
    return VisionConfig(
        hidden,
        values.whole("intermediate_size"),
        layers,
        _vision_heads(values, hidden),
        values.whole("patch_size"),
        None,
        None,
        n_positions,
        tuple(deepstack),
    )


def _vision_heads(values: Section, hidden: int) -> int:
    heads = values.whole("num_heads")
    if hidden % heads:
        raise values.fail("num_heads", f"a divisor of the tower's {hidden} components is needed")
    values.only("head_dim", hidden // heads)
    return heads


def _full_layers(values: Section) -> list[int]:
    layers = values.wholes("fullatt_block_indexes")
    step = layers[0] + 1 if layers else 0
    if not layers or layers != list(range(step - 1, values.whole("depth"), step)):
        raise values.fail(
            "fullatt_block_indexes", "every n-th layer, counted from n - 1, is supported"
        )
    return layers


def check_folder(folder: Path) -> None:
    """Raises ModelLoadError unless ``folder`` is a folder."""
    if not os.path.isdir(folder):
        raise ModelLoadError(
            f"{folder}: there is no such folder; a Hugging Face checkpoint is needed: config.json, "
            "tokenizer.json, preprocessor_config.json and *.safetensors"
        )
    if os.path.exists(folder / MANIFEST) and not os.path.exists(folder / "config.json"):
        raise ModelLoadError(f"{folder}: it is converted already; Embedder takes the folder")
