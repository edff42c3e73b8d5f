"""What transformers computes, in fp32, with the tiny Qwen3-VL model. Needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from support import qwen3, sequences
from support.sequences import Grid
from support.tiny import Weights


def config() -> Any:
    """transformers' configuration of the tiny model."""
    vocab = qwen3.vocab()
    text = {
        "vocab_size": len(vocab),
        "hidden_size": qwen3.HIDDEN,
        "intermediate_size": qwen3.FFN,
        "num_hidden_layers": qwen3.LAYERS,
        "num_attention_heads": qwen3.HEADS,
        "num_key_value_heads": qwen3.KV_HEADS,
        "head_dim": qwen3.HEAD,
        "rms_norm_eps": qwen3.EPS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": qwen3.ROPE_THETA,
            "mrope_section": list(qwen3.MROPE_SECTION),
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
    }
    vision = {
        "depth": qwen3.V_LAYERS,
        "hidden_size": qwen3.V_HIDDEN,
        "intermediate_size": qwen3.V_FFN,
        "num_heads": qwen3.V_HEADS,
        "patch_size": qwen3.PATCH,
        "out_hidden_size": qwen3.HIDDEN,
        "num_position_embeddings": qwen3.SIDE**2,
        "deepstack_visual_indexes": list(qwen3.DEEPSTACK),
    }
    return transformers.Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=vocab.id("<|image_pad|>"),
        video_token_id=vocab.id("<|video_pad|>"),
        vision_start_token_id=vocab.id("<|vision_start|>"),
        vision_end_token_id=vocab.id("<|vision_end|>"),
        tie_word_embeddings=True,
    )


class Reference:
    """The tiny model in transformers.

    Args:
        weights: What `qwen3.weights` gives.
    """

    def __init__(self, weights: Weights) -> None:
        settings = config()
        settings._attn_implementation = "eager"
        self.net = transformers.Qwen3VLModel(settings).eval()
        state = {
            name.removeprefix("model."): torch.from_numpy(array.copy())
            for name, array in weights.items()
        }
        self.net.load_state_dict(state)
        self._pad = qwen3.vocab().id("<|image_pad|>")

    @torch.inference_mode()
    def vit(self, patches: NDArray[np.float32], grids: list[Grid]) -> NDArray[np.float32]:
        """What the tower makes of pictures: the merged rows, then each deepstack layer's.

        Returns:
            float32 ``[sum(h * w / 4), HIDDEN * (1 + len(DEEPSTACK))]``.
        """
        thw = torch.from_numpy(sequences.grid_thw(grids))
        out = self.net.visual(torch.from_numpy(patches), grid_thw=thw)
        return torch.cat([out.pooler_output, *out.deepstack_features], dim=-1).numpy()

    @torch.inference_mode()
    def hidden(
        self,
        ids: NDArray[np.integer],
        patches: NDArray[np.float32] | None = None,
        grids: list[Grid] | None = None,
    ) -> NDArray[np.float32]:
        """Last hidden state after the final norm, ``[n, HIDDEN]``."""
        ids = np.asarray(ids, np.int64)
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids)[None]}
        if patches is not None:
            inputs |= {
                "pixel_values": torch.from_numpy(patches),
                "image_grid_thw": torch.from_numpy(sequences.grid_thw(grids or [])),
                "mm_token_type_ids": torch.from_numpy((ids == self._pad).astype(np.int32))[None],
            }
        return self.net(**inputs, use_cache=False).last_hidden_state[0].numpy()
