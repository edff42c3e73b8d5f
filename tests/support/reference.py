"""What transformers computes with the tiny models. Needs torch and transformers.

Example:
    >>> reference = Reference(tiny.MODELS["qwen25_small"])
    >>> ids = reference.tokenize("Query: a red square")
    >>> hidden = reference.hidden(ids)
    >>> vector = sequences.unit_mean(hidden)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import tokenizers
import torch
import transformers
from numpy.typing import NDArray
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl

from support import sequences, tiny
from support.sequences import Grid
from support.tiny import TinyModel, Weights

Variant = Literal[
    "right",
    "text_eps_0",
    "vision_eps_0",
    "tanh_gelu",
    "mask_without_2d",
    "positions_1d",
]
"""``right``, or one deliberate mistake:

- ``text_eps_0``: the language model's RMS norms have no epsilon;
- ``vision_eps_0``: the vision tower's norms have none;
- ``tanh_gelu``: the merger's GELU is the tanh approximation;
- ``mask_without_2d``: image rows see every row of their own picture, because all have
  one temporal position and the mask compares nothing else;
- ``positions_1d``: image rows are positioned like text.
"""
VARIANTS: tuple[Variant, ...] = (
    "text_eps_0",
    "vision_eps_0",
    "tanh_gelu",
    "mask_without_2d",
    "positions_1d",
)
# The Qwen2 split, as in tokenizer.json.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def config(model: TinyModel) -> Any:
    """transformers' configuration of a tiny model."""
    vocab = model.vocab
    text: dict[str, Any] = {
        "vocab_size": len(vocab),
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": model.rope_theta,
            "mrope_section": list(model.mrope_section),
        },
        "tie_word_embeddings": model.tied,
        "bos_token_id": vocab.id("<|endoftext|>"),
        "eos_token_id": vocab.id("<|im_end|>"),
    }
    vision: dict[str, Any] = {"depth": model.v_layers, "num_heads": model.v_heads}
    ids: dict[str, Any] = {
        "image_token_id": vocab.id("<|image_pad|>"),
        "video_token_id": vocab.id("<|video_pad|>"),
        "vision_start_token_id": vocab.id("<|vision_start|>"),
        "vision_end_token_id": vocab.id("<|vision_end|>"),
        "tie_word_embeddings": model.tied,
    }
    if model.family == "qwen2_vl":
        vision |= {
            "embed_dim": model.v_hidden,
            "hidden_size": model.hidden,
            "mlp_ratio": model.v_ffn // model.v_hidden,
        }
        return transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    vision |= {
        "hidden_size": model.v_hidden,
        "intermediate_size": model.v_ffn,
        "out_hidden_size": model.hidden,
        "window_size": tiny.WINDOW,
        "fullatt_block_indexes": model.full_attention_layers,
    }
    return transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)


@lru_cache
def tokenizer(model: TinyModel, special: bool) -> tokenizers.Tokenizer:
    """The model's tokenizer as tokenizer.json would describe it.

    Args:
        model: The model.
        special: Whether special tokens are recognised in the text. ``<tool_call>`` and
            ``</tool_call>`` are no special tokens and always are.
    """
    vocab = model.vocab
    merges = [(left, right) for left, right in (merge.split(" ") for merge in vocab.merges)]
    n_base = vocab.id("<|endoftext|>")
    result = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={token: i for i, token in enumerate(vocab.tokens[:n_base])},
            merges=merges,
        )
    )
    result.normalizer = tokenizers.normalizers.NFC()
    result.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(_SPLIT), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    added = [token for token in vocab.tokens[n_base:] if not token.startswith("[PAD")]
    if not special:
        added = [token for token in added if "|" not in token]
    result.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in added])
    return result


def _norm_in_own_dtype(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)


def _vision_rope_in_own_dtype(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = cos.unsqueeze(-2).to(q.dtype), sin.unsqueeze(-2).to(q.dtype)
    rotate = modeling_qwen2_5_vl.rotate_half
    return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


class Reference:
    """A tiny model in transformers.

    Args:
        model: Dimensions and seed.
        weights: Parameters; default ``tiny.weights(model)``.
        double: Compute in float64 (transformers' own casts to float32 in the norms and
            the vision rope are lifted; angles stay float32).
        variant: One of `Variant`.
    """

    def __init__(
        self,
        model: TinyModel,
        weights: Weights | None = None,
        *,
        double: bool = False,
        variant: Variant = "right",
    ) -> None:
        self.model = model
        self.variant = variant
        self.dtype = torch.float64 if double else torch.float32
        is_qwen2 = model.family == "qwen2_vl"
        module = modeling_qwen2_vl if is_qwen2 else modeling_qwen2_5_vl
        kind = (
            transformers.Qwen2VLForConditionalGeneration
            if is_qwen2
            else transformers.Qwen2_5_VLForConditionalGeneration
        )
        settings = config(model)
        settings._attn_implementation = "sdpa" if double else "eager"
        self.net = kind(settings).eval().to(self.dtype)
        arrays = tiny.weights(model) if weights is None else weights
        state = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        if model.tied:
            state["lm_head.weight"] = state["model.language_model.embed_tokens.weight"]
        self.net.load_state_dict(state)
        self._module = module
        self._double = double
        self._make_variant()

    def _make_variant(self) -> None:
        for name, part in self.net.named_modules():
            is_vision = ".visual." in f".{name}."
            if type(part).__name__.endswith("RMSNorm") and self._double:
                part.forward = _norm_in_own_dtype.__get__(part)
            if self.variant == ("vision_eps_0" if is_vision else "text_eps_0"):
                if hasattr(part, "variance_epsilon"):
                    part.variance_epsilon = 0.0
                elif isinstance(part, torch.nn.LayerNorm):
                    part.eps = 0.0
            if self.variant == "tanh_gelu" and isinstance(part, torch.nn.GELU):
                part.approximate = "tanh"

    def tokenize(self, text: str, *, special: bool = False) -> NDArray[np.int64]:
        """Ids of a text, int64 [n]; special tokens in it count only with ``special``."""
        encoder = tokenizer(self.model, special)
        ids = self.model.vocab.ids
        tokens = encoder.encode(text, add_special_tokens=False).tokens
        return np.array([ids[token] for token in tokens], dtype=np.int64)

    def image_ids(self, grid: Grid) -> NDArray[np.int64]:
        """The jina-embeddings-v4 image prompt for a picture of ``grid``, int64 [n]."""
        pads = "<|image_pad|>" * sequences.n_merged(grid)
        text = sequences.IMAGE_PREFIX + pads + sequences.IMAGE_SUFFIX
        return self.tokenize(text, special=True)

    @torch.inference_mode()
    def vit(self, patches: NDArray[np.float32], grids: list[Grid]) -> NDArray[np.float64]:
        """Merged image embeddings, [sum(h * w / 4), hidden].

        Args:
            patches: float32 [sum(h * w), 1176].
            grids: (height, width) in patches of each picture.
        """
        thw = torch.from_numpy(sequences.grid_thw(grids))
        with _lifted_rope(self._module, self._double):
            out = self.net.model.visual(torch.from_numpy(patches).to(self.dtype), grid_thw=thw)
        return out.pooler_output.double().numpy()

    @torch.inference_mode()
    def hidden(
        self,
        ids: NDArray[np.integer],
        patches: NDArray[np.float32] | None = None,
        grids: list[Grid] | None = None,
    ) -> NDArray[np.float64]:
        """Last hidden state after the final norm, [n, hidden].

        Args:
            ids: [n], with one ``<|image_pad|>`` per image row.
            patches: As in `vit`, None for text alone.
            grids: As in `vit`.
        """
        is_image = sequences.is_image(self.model, ids)
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(np.asarray(ids, np.int64))[None]}
        if patches is not None:
            inputs |= {
                "pixel_values": torch.from_numpy(patches).to(self.dtype),
                "image_grid_thw": torch.from_numpy(sequences.grid_thw(grids or [])),
                "mm_token_type_ids": torch.from_numpy(is_image.astype(np.int32))[None],
            }
        if self.variant == "positions_1d":
            inputs["position_ids"] = torch.arange(len(ids)).view(1, 1, -1).expand(3, 1, -1)
        if self.variant == "mask_without_2d":
            inputs["attention_mask"] = torch.from_numpy(_mask_without_2d(is_image))[None, None].to(
                self.dtype
            )
            inputs.setdefault("position_ids", self._positions(inputs))
        with _lifted_rope(self._module, self._double):
            out = self.net.model(**inputs, use_cache=False)
        return out.last_hidden_state[0].double().numpy()

    def _positions(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        if "image_grid_thw" not in inputs:
            return None
        names = ("input_ids", "image_grid_thw", "mm_token_type_ids")
        positions, _ = self.net.model.get_rope_index(**{name: inputs[name] for name in names})
        return positions

    def text_vector(self, text: str) -> NDArray[np.float32]:
        """Unit mean over all tokens of a prefixed text."""
        return sequences.unit_mean(self.hidden(self.tokenize(text)))

    def image_vector(self, patches: NDArray[np.float32], grid: Grid) -> NDArray[np.float32]:
        """jina-embeddings-v4's picture vector: unit mean, vision_start to vision_end."""
        ids = self.image_ids(grid)
        span = sequences.vision_span(self.model, ids)
        return sequences.unit_mean(self.hidden(ids, patches, [grid]), *span)


def _mask_without_2d(is_image: NDArray[np.bool_]) -> NDArray[np.float32]:
    n = len(is_image)
    mask = np.triu(np.full((n, n), np.finfo(np.float32).min, np.float32), 1)
    start = 0
    for flag, group in itertools.groupby(is_image.tolist()):
        stop = start + len(list(group))
        if flag:
            mask[start:stop, start:stop] = 0
        start = stop
    return mask


@contextmanager
def _lifted_rope(module: Any, active: bool) -> Iterator[None]:
    """Keeps transformers' vision rope from rounding to float32 while in double."""
    saved = module.apply_rotary_pos_emb_vision
    if active:
        module.apply_rotary_pos_emb_vision = _vision_rope_in_own_dtype
    try:
        yield
    finally:
        module.apply_rotary_pos_emb_vision = saved
