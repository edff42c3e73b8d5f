"""Q4_K and Q6_K as ggml lays them out, quantized plainly: gguf-py only reads them.

Good enough for timing: scales come from the extremes of each group, without ggml's search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
# Blocks worked on at once; keeps the temporaries within a few ten MB.
CHUNK = 1 << 14


def q4_k(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Bytes [..., n / 256 * 144] of float32 [..., n]."""
    return _in_chunks(values, _q4_k, 144)


def q6_k(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Bytes [..., n / 256 * 210] of float32 [..., n]."""
    return _in_chunks(values, _q6_k, 210)


def _in_chunks(values: NDArray[np.float32], function: object, size: int) -> NDArray[np.uint8]:
    blocks = values.reshape(-1, BLOCK)
    out = np.empty((len(blocks), size), np.uint8)
    for start in range(0, len(blocks), CHUNK):
        out[start : start + CHUNK] = function(blocks[start : start + CHUNK])
    return out.reshape(*values.shape[:-1], -1)


def _q4_k(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """8 groups of 32: value = d * scale * q - dmin * min, with q of 4 and scale, min of 6 bits."""
    groups = blocks.reshape(-1, 8, 32)
    lowest = np.maximum(-groups.min(2), 0)
    step = (groups.max(2) + lowest) / 15
    d, scale = _six_bits(step)
    dmin, low = _six_bits(lowest)
    unit = (d.astype(np.float32) * scale)[..., None]
    offset = (dmin.astype(np.float32) * low)[..., None]
    q = np.clip(np.rint((groups + offset) / np.where(unit == 0, 1, unit)), 0, 15).astype(np.uint8)
    pairs = q.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    # The last four scales and minima share bytes with the first four.
    scales = [values[:, :4] | (values[:, 4:] >> 4) << 6 for values in (scale, low)]
    scales.append((scale[:, 4:] & 15) | (low[:, 4:] & 15) << 4)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), *scales, nibbles], 1)


def _six_bits(values: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """A float16 unit per row and the values as its multiples, 0 to 63."""
    unit = (values.max(1, keepdims=True) / 63).astype(np.float16)
    safe = np.where(unit == 0, 1, unit).astype(np.float32)
    return unit, np.clip(np.rint(values / safe), 0, 63).astype(np.uint8)


def _q6_k(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """16 groups of 16: value = d * scale * (q - 32), with q of 6 bits and scale of 8."""
    groups = blocks.reshape(-1, 16, 16)
    step = np.abs(groups).max(2) / 31
    d = (step.max(1, keepdims=True) / 127).astype(np.float16)
    scale = np.clip(np.rint(step / np.where(d == 0, 1, d).astype(np.float32)), 0, 127)
    unit = (d.astype(np.float32) * scale)[..., None]
    q = np.clip(np.rint(groups / np.where(unit == 0, 1, unit)), -32, 31) + 32
    # Halves of 128, each four runs of 32: the low nibbles of runs 0 and 2 share bytes, and so on.
    runs = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = runs & 15, runs >> 4
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], 2)
    qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    parts = [ql.reshape(-1, 128), qh.reshape(-1, 64), scale.astype(np.int8).view(np.uint8)]
    return np.concatenate([*parts, d.view(np.uint8)], 1)
