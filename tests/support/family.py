"""Tiny seeded models of further families: weights from recorded shapes, written as GGUF.

The shapes are transformers' own: the golden file of a family records them, so that the default
run needs no torch. Tensor names go through the package gguf's table.

Example:
    >>> family = FAMILIES["mamba"]
    >>> arrays = weights(family, {"layers.0.norm.weight": [32]})
    >>> arrays["layers.0.norm.weight"].shape
    (32,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from support import gguf_writer, words
from support.words import Words

Array = NDArray[np.float32]
Rename = Callable[[str, Array], tuple[str, Array]]

EMBEDDING_STD = 0.5
VECTOR_STD = 0.2
# Above 1 so that a wrong mask or a wrong position is seen in the result.
QK_GAIN = 1.25
_TABLES = ("embed", "token_type")
# Of a clamp; the greatest value is its negative.
_CLAMPED = {"input_min": -2.0, "output_min": -3.0, "input_max": 2.0, "output_max": 3.0}
_QK = ("q_proj", "k_proj", "query", "key")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model.

    Attributes:
        name: Also of its golden file.
        architecture: ``general.architecture``.
        enum: Of ``gguf.MODEL_ARCH``, for the table of names.
        net: transformers' class.
        config: Arguments of its configuration class.
        words: The vocabulary.
        keys: GGUF keys without the architecture's prefix.
        norm_mean: 0 where the reference adds 1 to the weights of a norm.
        extra: Shapes of parameters that transformers' class has not.
        rename: What llama.cpp's converter changes beside the names.
        pooling: The reference's: "mean" or "cls".
        prefix: Of the parameters' names in a whole checkpoint.
        seed: Of the weights.
        net_arguments: Further arguments of ``net``.
    """

    name: str
    architecture: str
    enum: str
    net: str
    config: Mapping[str, Any]
    words: Callable[[], Words]
    keys: Mapping[str, Any]
    norm_mean: float = 1.0
    extra: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rename: Rename = lambda name, value: (name, value)
    pooling: str = "mean"
    prefix: str = ""
    seed: int = 1
    net_arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_layers(self) -> int:
        """Layers of the language model."""
        return int(self.config["num_hidden_layers"])


def weights(family: Family, shapes: Mapping[str, Any]) -> dict[str, Array]:
    """Makes all parameters, from the seed.

    Args:
        family: Whose.
        shapes: By transformers' names, in a fixed order.
    """
    rng = np.random.Generator(np.random.PCG64(family.seed))
    result = {}
    for name, shape in {**shapes, **family.extra}.items():
        mean, std = _mean_std(family, name, tuple(shape))
        values = (2.0 * rng.random(tuple(shape)) - 1.0) * (std * np.sqrt(3.0)) + mean
        result[name] = np.asarray(values, np.float32)
    return result


def _mean_std(family: Family, name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    owner, _, kind = name.rpartition(".")
    if kind == "A_log":
        return 0.7, 0.4
    if kind in _CLAMPED:
        return _CLAMPED[kind], VECTOR_STD
    if kind == "position_embedding_table":
        return 0.0, EMBEDDING_STD
    if kind == "D":
        return 1.0, VECTOR_STD
    if kind in ("bias", "dt_bias"):
        return (-1.0 if "dt" in name else 0.0), VECTOR_STD
    if len(shape) == 1:
        return family.norm_mean, VECTOR_STD
    if any(part in owner for part in _TABLES) and len(shape) == 2:
        return 0.0, EMBEDDING_STD
    gain = QK_GAIN if any(part in name for part in _QK) else 1.0
    return 0.0, gain / float(np.sqrt(np.prod(shape[1:])))


def write(family: Family, arrays: Mapping[str, Array], path: Path) -> Path:
    """Writes the model in F32.

    Returns:
        ``path``.
    """
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.enum], family.n_layers)
    writer = gguf.GGUFWriter(path, family.architecture)
    writer.add_type("model")
    writer.add_name(family.name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in family.keys.items():
        add_key(writer, f"{family.architecture}.{key}", value)
    for key, value in family.words().keys.items():
        add_key(writer, key, value)
    for name, value in arrays.items():
        name, value = family.rename(name, value)
        found = names.get_name(family.prefix + name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(found or name, np.ascontiguousarray(value, np.float32))
    gguf_writer.finish(writer)
    return path


def add_key(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Writes a key with the type that its value has."""
    add = {
        str: writer.add_string,
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        list: writer.add_array,
    }
    add[type(value)](key, value)


def gemma(name: str, value: Array) -> tuple[str, Array]:
    """Gemma adds 1 to the weights of its norms."""
    return name, value + 1 if name.endswith("norm.weight") else value


def gemma2_embedding(name: str, value: Array) -> tuple[str, Array]:
    """EmbeddingGemma 2's own names, which the package gguf has only from a later version on."""
    for theirs, ours in (
        ("layer_scalar", "layer_output_scale.weight"),
        ("ple_block.per_layer_input_gate", "inp_gate"),
        ("ple_block.per_layer_projection", "proj"),
        ("ple_block.post_per_layer_input_norm", "post_norm"),
    ):
        if theirs in name:
            return name.replace("layers.", "blk.", 1).replace(theirs, ours), value
    for theirs, ours in (
        ("ple.per_layer_model_projection", "per_layer_model_proj"),
        ("ple.per_layer_projection_norm", "per_layer_proj_norm"),
        ("embedding_projection", "output"),
    ):
        name = name.replace(theirs, ours)
    return name, value


def _mamba(name: str, value: Array) -> tuple[str, Array]:
    if name.endswith(".A_log"):
        return name, -np.exp(value)
    return name, value.squeeze(1) if "conv1d.weight" in name else value


def _lfm2(name: str, value: Array) -> tuple[str, Array]:
    return name, value.squeeze(1) if "conv.conv" in name else value


def _text_keys(config: Mapping[str, Any], context: int = 2048) -> dict[str, Any]:
    return {
        "context_length": context,
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config.get("intermediate_size", 0),
        "attention.head_count": config.get("num_attention_heads", 0),
    }


def gemma_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of Gemma 3's language models."""
    return {
        **_text_keys(config),
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }


def gemma2_embedding_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of EmbeddingGemma 2's language models, whose window counts both sides."""
    is_sliding = [bool((i + 1) % 3) for i in range(config["num_hidden_layers"])]
    n_kv = config["num_key_value_heads"], config["num_global_key_value_heads"]
    head, global_head = config["head_dim"], config["global_head_dim"]
    return {
        **_text_keys(config),
        "attention.head_count_kv": [n_kv[0] if sliding else n_kv[1] for sliding in is_sliding],
        "attention.key_length": global_head,
        "attention.value_length": global_head,
        "attention.key_length_swa": head,
        "attention.value_length_swa": head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 2 * config["sliding_window"],
        "attention.sliding_window_pattern": is_sliding,
        "attention.causal": False,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": global_head,
        "rope.dimension_count_swa": head,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "embedding_length_out": config["embedding_dim"],
        "pooling_type": int(gguf.PoolingType.MEAN),
    }


GEMMA: dict[str, Any] = {
    "vocab_size": words.sentencepiece().size,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 16,
    "use_bidirectional_attention": True,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}
GEMMA2_EMBEDDING: dict[str, Any] = {
    "vocab_size": words.gemma4().size,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "hidden_size_per_layer_input": 20,
    "embedding_dim": 80,
}
_BERT = {
    "vocab_size": words.wordpiece().size,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
_MAMBA = {
    "vocab_size": words.byte_level().size,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "state_size": 16,
    "time_step_rank": 4,
}
_LFM2 = {
    "vocab_size": words.byte_level().size,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}

FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="embeddinggemma",
            architecture="gemma-embedding",
            enum="GEMMA_EMBEDDING",
            net="Gemma3TextModel",
            config=GEMMA,
            words=words.sentencepiece,
            keys={
                **gemma_keys(GEMMA),
                "attention.sliding_window": 16,
                "pooling_type": int(gguf.PoolingType.MEAN),
                "dense_2_feat_in": 48,
                "dense_2_feat_out": 80,
                "dense_3_feat_in": 80,
                "dense_3_feat_out": 48,
            },
            norm_mean=0.0,
            extra={"dense_2.weight": (80, 48), "dense_3.weight": (48, 80)},
            rename=gemma,
            seed=11,
        ),
        Family(
            name="embeddinggemma2",
            architecture="gemma-embedding2",
            enum="GEMMA_EMBEDDING",
            net="EmbeddingGemma2TextModel",
            config=GEMMA2_EMBEDDING,
            words=words.gemma4,
            keys=gemma2_embedding_keys(GEMMA2_EMBEDDING),
            rename=gemma2_embedding,
            seed=15,
        ),
        Family(
            name="bert",
            architecture="bert",
            enum="BERT",
            net="BertModel",
            config=_BERT,
            net_arguments={"add_pooling_layer": False},
            words=words.wordpiece,
            keys={
                **_text_keys(_BERT, 256),
                "attention.layer_norm_epsilon": 1e-12,
                "attention.causal": False,
                "pooling_type": int(gguf.PoolingType.CLS),
            },
            pooling="cls",
            seed=12,
        ),
        Family(
            name="mamba",
            architecture="mamba",
            enum="MAMBA",
            net="MambaModel",
            config=_MAMBA,
            words=words.byte_level,
            keys={
                **_text_keys(_MAMBA),
                "ssm.conv_kernel": 4,
                "ssm.inner_size": 64,
                "ssm.state_size": 16,
                "ssm.time_step_rank": 4,
                "ssm.dt_b_c_rms": False,
                "attention.layer_norm_rms_epsilon": 1e-5,
            },
            rename=_mamba,
            prefix="backbone.",
            seed=13,
        ),
        Family(
            name="lfm2",
            architecture="lfm2",
            enum="LFM2",
            net="Lfm2Model",
            config=_LFM2,
            words=words.byte_level,
            keys={
                **_text_keys(_LFM2),
                "vocab_size": words.byte_level().size,
                "attention.head_count_kv": [0, 2, 0, 2],
                "attention.layer_norm_rms_epsilon": 1e-5,
                "shortconv.l_cache": 3,
                "rope.freq_base": 1e6,
            },
            rename=_lfm2,
            prefix="model.",
            seed=14,
        ),
    )
}
