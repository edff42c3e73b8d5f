"""Checks of the vision towers of Qwen-VL, which take pictures of any size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jmm.gguf_header.file import CHANNELS, expect
from jmm.gguf_header.layers import check_attention, check_heads, check_layer, n_layer_of

if TYPE_CHECKING:
    from jmm.gguf_header.file import Header

PROJECTORS = {
    "qwen2vl_merger": "Qwen2-VL",
    "qwen2.5vl_merger": "Qwen2.5-VL",
    "qwen3vl_merger": "Qwen3-VL",
}
MERGE_SIZE = 2
_DEFAULT_WINDOW = 112
_NOT_HERE = ("v.patch_embd.bias", "v.class_embd")


def check_qwen2_tower(header: Header, *, windowed: bool) -> None:
    """Checks the tower of Qwen2-VL, or with ``windowed`` of Qwen2.5-VL."""
    n_embd, merge = _check_sizes(header)
    if windowed:
        pixels = header.positive("clip.vision.patch_size") * merge
        header.positive("clip.vision.n_wa_pattern")
        window = header.metadata.get("clip.vision.window_size", _DEFAULT_WINDOW)
        if window <= 0 or window % pixels:
            raise header.fail(f"window_size is {window}; a multiple of {pixels} is needed")
    for name in _NOT_HERE:
        if name in header.shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")
    _check_ends(header, n_embd, biased=not windowed)
    for layer in range(n_layer_of(header)):
        prefix = f"v.blk.{layer}."
        check_attention(header, prefix, n_embd)
        check_layer(header, prefix, n_embd, windowed=windowed)


def check_qwen3_tower(header: Header) -> None:
    """Checks the tower of Qwen3-VL."""
    n_embd, merge = _check_sizes(header)
    if header.metadata.get("clip.use_gelu") is not True:
        raise header.fail("clip.use_gelu is not true; the layers of this tower have GELU")
    for name in header.shapes:
        if name == "v.class_embd" or ".ffn_gate." in name or name.startswith("v.pre_ln."):
            raise header.fail(f"tensor {name} has no place in this vision tower")
    expect(header, "v.patch_embd.bias", (n_embd,))
    n_positions = header.shapes.get("v.position_embd.weight", (0, 0))[1]
    if math.isqrt(n_positions) ** 2 != n_positions:
        raise header.fail(f"v.position_embd.weight has {n_positions} rows; a square is needed")
    expect(header, "v.position_embd.weight", (n_embd, max(n_positions, 1)))
    _check_ends(header, n_embd, biased=True)
    n_layer = n_layer_of(header)
    for layer in range(n_layer):
        prefix = f"v.blk.{layer}."
        expect(header, f"{prefix}attn_qkv.weight", (n_embd, 3 * n_embd))
        expect(header, f"{prefix}attn_qkv.bias", (3 * n_embd,))
        check_layer(header, prefix, n_embd, windowed=False)
    merged = n_embd * merge * merge
    n_out = header.positive("clip.vision.projection_dim")
    for index in deepstack_layers(header):
        if not index.isdecimal() or not 0 <= int(index) < n_layer:
            raise header.fail(f"v.deepstack.{index} is none of the {n_layer} layers")
        for name, shape in (
            ("norm", (merged,)),
            ("fc1", (merged, merged)),
            ("fc2", (merged, n_out)),
        ):
            expect(header, f"v.deepstack.{index}.{name}.weight", shape)
            expect(header, f"v.deepstack.{index}.{name}.bias", shape[-1:])


def deepstack_layers(header: Header) -> list[str]:
    """Indices of the layers whose rows go into layers of the language model."""
    names = (name.split(".") for name in header.shapes if name.startswith("v.deepstack."))
    return list(dict.fromkeys(index for _, _, index, *_ in names))


def _check_sizes(header: Header) -> tuple[int, int]:
    """The tower's width, and patches per side of a token."""
    n_embd = check_heads(header)
    merge = header.metadata.get("clip.vision.spatial_merge_size", MERGE_SIZE)
    if merge != MERGE_SIZE:
        raise header.fail(f"spatial_merge_size is {merge}; {MERGE_SIZE} is supported")
    return n_embd, MERGE_SIZE


def _check_ends(header: Header, n_embd: int, *, biased: bool) -> None:
    """What comes before the layers and after them."""
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    if "v.patch_embd.weight_flat" in header.shapes:
        expect(header, "v.patch_embd.weight_flat", (patch * patch * CHANNELS * 2, n_embd))
    else:
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            expect(header, name, (patch, patch, CHANNELS, n_embd))
    merged = n_embd * MERGE_SIZE**2
    expect(header, "v.post_ln.weight", (n_embd,))
    if biased:
        expect(header, "v.post_ln.bias", (n_embd,))
    expect(header, "mm.0.weight", (merged, merged))
    expect(header, "mm.0.bias", (merged,))
    expect(header, "mm.2.weight", (merged, n_out))
    expect(header, "mm.2.bias", (n_out,))
