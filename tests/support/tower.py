"""The vision towers in numpy, in double: dense masks, no batches, one picture at a time.

An oracle for pictures that no golden file holds; the golden files, which transformers made, are
its own (tests/unit/test_tower.py).

Example:
    >>> tower = Tower(tiny.MODELS["qwen25_small"], golden.weights("qwen25_small"))
    >>> tower(tiny.patches(tiny.picture(4, 6)), (4, 6)).shape
    (6, 64)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from support import tiny
from support.sequences import Grid
from support.tiny import TinyModel, Weights

Float64 = NDArray[np.float64]

_ROPE_THETA = 10_000.0
_erf = np.vectorize(math.erf)


def merge_order(grid: Grid) -> NDArray[np.int64]:
    """(y, x) of each patch, int64 [h * w, 2], in the order in which patches are stored."""
    step = tiny.MERGE
    y, x = np.mgrid[: grid[0], : grid[1]]
    cut = np.stack([y, x], -1).reshape(grid[0] // step, step, grid[1] // step, step, 2)
    return cut.transpose(0, 2, 1, 3, 4).reshape(-1, 2)


class Tower:
    """One model's tower.

    Args:
        model: Dimensions.
        weights: What ``tiny.weights(model)`` gives.
    """

    def __init__(self, model: TinyModel, weights: Weights) -> None:
        self._model = model
        prefix = "model.visual."
        self._weights = {
            name.removeprefix(prefix): array.astype(np.float64)
            for name, array in weights.items()
            if name.startswith(prefix)
        }

    def __call__(self, patches: NDArray[np.float32], grid: Grid) -> Float64:
        """Merged tokens [h * w / 4, hidden] of patches [h * w, 1176]."""
        kernel = self._weights["patch_embed.proj.weight"]
        places = merge_order(grid)
        angles = self._angles(places)
        window = places // (tiny.WINDOW // tiny.PATCH)
        same = (window[:, None] == window[None]).all(-1)
        full = self._model.full_attention_layers
        state = patches.astype(np.float64) @ kernel.reshape(len(kernel), -1).T
        for i in range(self._model.v_layers):
            block = f"blocks.{i}."
            mask = np.ones_like(same) if i in full else same
            state = state + self._attend(block, self._norm(block + "norm1", state), angles, mask)
            state = state + self._feed(block + "mlp.", self._norm(block + "norm2", state))
        merged = self._norm("merger.ln_q", state).reshape(len(state) // 4, -1)
        inner = self._linear("merger.mlp.0", merged)
        gelu = 0.5 * inner * (1 + _erf(inner / math.sqrt(2)))
        return self._linear("merger.mlp.2", gelu)

    def _linear(self, name: str, state: Float64) -> Float64:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, state: Float64) -> Float64:
        bias = self._weights.get(f"{name}.bias")
        if bias is not None:
            state = state - state.mean(-1, keepdims=True)
        scale = np.sqrt((state**2).mean(-1, keepdims=True) + tiny.VISION_EPS)
        return state / scale * self._weights[f"{name}.weight"] + (0 if bias is None else bias)

    def _feed(self, name: str, state: Float64) -> Float64:
        if self._model.family == "qwen2_vl":
            inner = self._linear(name + "fc1", state)
            return self._linear(name + "fc2", inner / (1 + np.exp(-1.702 * inner)))
        gate = self._linear(name + "gate_proj", state)
        return self._linear(
            name + "down_proj", gate / (1 + np.exp(-gate)) * self._linear(name + "up_proj", state)
        )

    def _angles(self, places: NDArray[np.int64]) -> Float64:
        """Of each patch and pair of components, [n, head_dim / 2]."""
        n = self._model.v_hidden // self._model.v_heads // 2
        steps = _ROPE_THETA ** -(np.arange(0, n, 2) / n)
        return np.concatenate([places[:, :1] * steps, places[:, 1:] * steps], 1)

    def _attend(
        self, block: str, state: Float64, angles: Float64, mask: NDArray[np.bool_]
    ) -> Float64:
        n_heads = self._model.v_heads
        qkv = self._linear(block + "attn.qkv", state)
        q, k, v = qkv.reshape(len(state), 3, n_heads, -1).transpose(1, 2, 0, 3)
        q, k = _rotated(q, angles), _rotated(k, angles)
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.where(mask, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return self._linear(
            block + "attn.proj", (scores @ v).transpose(1, 0, 2).reshape(state.shape)
        )


def _rotated(heads: Float64, angles: Float64) -> Float64:
    low, high = np.split(heads, 2, -1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)
