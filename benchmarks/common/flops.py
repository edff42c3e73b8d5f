"""How many operations an item takes: multiplications and additions of all matrix products.

A product of [m, k] and [k, n] counts 2*m*k*n. Left out, as they are small beside it: norms, rotary
embeddings, softmax, activations, sums.

Vision, n patches: the patch embedding is one product over 1176 columns; a layer has four square
projections and three of the FFN; attention is QK^T and PV, 4*n*keys*width in all, where a patch
attends to its own window of 8 x 8 patches (fewer at the edges) or, in the full layers, to all n.
The merger works on groups of four patches.

Language, t tokens: as much per token as the layer's matrices hold, and causal attention over
t*(t+1)/2 pairs. Embedding needs no lm_head; what an engine spends on it is that engine's loss.
"""

from __future__ import annotations

from support import tiny
from support.tiny import TinyModel


def vision(model: TinyModel, height: int, width: int) -> int:
    """Operations of one picture of so many pixels in the vision tower."""
    grid = height // tiny.PATCH, width // tiny.PATCH
    n = grid[0] * grid[1]
    wide, n_full = model.v_hidden, len(model.full_attention_layers)
    windows = sum(size * size for size in tiny.window_sizes(*grid))
    layer = 4 * wide * wide + 3 * wide * model.v_ffn
    merged = wide * tiny.MERGE**2
    products = n * 3 * 2 * tiny.PATCH**2 * wide + model.v_layers * n * layer
    products += n // tiny.MERGE**2 * (merged * merged + merged * model.hidden)
    pairs = n_full * n * n + (model.v_layers - n_full) * windows
    return 2 * products + 4 * pairs * wide


def language(model: TinyModel, n_tokens: int) -> int:
    """Operations of one sequence in the language model."""
    wide, n_kv = model.hidden, model.kv_heads * model.head_dim
    layer = 2 * wide * wide + 2 * wide * n_kv + 3 * wide * model.ffn
    pairs = n_tokens * (n_tokens + 1) // 2
    return model.layers * (2 * n_tokens * layer + 4 * pairs * wide)
