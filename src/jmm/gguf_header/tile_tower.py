"""Checks of the vision towers that take tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmm.gguf_header.file import CHANNELS, expect
from jmm.gguf_header.layers import (
    check_attention,
    check_heads,
    check_layer,
    check_width,
    n_layer_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmm.gguf_header.file import Header, Shape

TILE_PROJECTORS = {
    "gemma3": "Gemma 3",
    "idefics3": "SmolVLM and Idefics3",
    "mlp": "LLaVA",
    "internvl": "InternVL",
    "gemma4v": "EmbeddingGemma 2",
}
# The tower of Gemma 4 takes one tile of any size; here it belongs to one language model.
_GEMMA4_LANGUAGE_MODEL = "gemma-embedding2"
_GEMMA4_TOKENS = 280
_GEMMA4_MAX_TOKENS = 1120
_CLAMPS = ("input_min", "input_max", "output_min", "output_max")
# A tile's rows pass in one forward where they see each other.
_MAX_TILE_ROWS = 1024
_MAX_TILE = 8192
_MAX_TILES = 64
# Layers of openai's clip-vit models (B, L, H) by width, of which LLaVA runs all but the last.
_CLIP_LAYERS = {768: 12, 1024: 24, 1280: 32}
_NOT_HERE = ("v.norm_embd.weight", "v.patch_embd.weight.1", "mm.1.weight", "mm.3.weight")


def tile_tokens(projector: str, metadata: Mapping[str, Any]) -> int:
    """Rows that a tower makes of one tile."""
    n_patches = metadata["clip.vision.image_size"] // metadata["clip.vision.patch_size"]
    return int((n_patches // scale_factor(projector, metadata)) ** 2)


def scale_factor(projector: str, metadata: Mapping[str, Any]) -> int:
    """Patches per side that become one row."""
    default = {"gemma3": 4, "gemma4v": 3, "mlp": 1}.get(projector, 2)
    return int(metadata.get("clip.vision.projector.scale_factor", default))


def gemma4_sizes(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Pixels per side of a row of Gemma 4's tower, and the most rows of a picture.

    The number is what transformers' processors make by default (``max_soft_tokens``), unless the
    file has ``clip.vision.image_max_pixels``.
    """
    side = metadata["clip.vision.patch_size"] * scale_factor("gemma4v", metadata)
    area = metadata.get("clip.vision.image_max_pixels", _GEMMA4_TOKENS * side**2)
    return side, area // side**2


def check_tile_pair(header: Header, text: Header, projector: str) -> None:
    """Raises ModelLoadError unless the tower and the language model fit each other."""
    if (projector == "gemma4v") != (text.architecture == _GEMMA4_LANGUAGE_MODEL):
        raise header.fail(
            f"the language model {text.path} has architecture {text.architecture!r}; vision "
            f"towers of kind gemma4v and models of architecture {_GEMMA4_LANGUAGE_MODEL!r} are "
            "supported with each other alone"
        )
    if f"{text.architecture}.rope.dimension_sections" in text.types:
        raise header.fail(
            f"pictures of the language model {text.path} have rows and columns; this vision tower "
            "belongs to another architecture"
        )
    check_width(header, text)


def check_tile_tower(header: Header, projector: str) -> None:
    """Checks a tower that takes tiles of one size."""
    n_embd = check_heads(header)
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    side = header.positive("clip.vision.image_size")
    for key in ("projector.scale_factor", "preproc_image_size", "preproc_min_tiles"):
        if f"clip.vision.{key}" in header.types:
            header.positive(f"clip.vision.{key}")
    scale = scale_factor(projector, header.metadata)
    if side > _MAX_TILE or side % patch or side // patch % scale:
        raise header.fail(
            f"image_size is {side}; a multiple of {patch * scale} up to {_MAX_TILE} is needed"
        )
    if tile_tokens(projector, header.metadata) > _MAX_TILE_ROWS:
        raise header.fail(
            f"a picture of {side} x {side} pixels gives "
            f"{tile_tokens(projector, header.metadata)} rows; {_MAX_TILE_ROWS} are supported"
        )
    least = header.metadata.get("clip.vision.preproc_min_tiles", 1)
    most = header.metadata.get("clip.vision.preproc_max_tiles", 12)
    if not isinstance(most, int) or not least <= most <= _MAX_TILES:
        raise header.fail(
            f"preproc_min_tiles is {least} and preproc_max_tiles is {most!r}; numbers that do not "
            f"cross, up to {_MAX_TILES}, are needed"
        )
    for name in _NOT_HERE:
        if name in header.shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")

    if "clip.vision.image_grid_pinpoints" in header.types:
        raise header.fail("LLaVA-NeXT's grids of pictures are not supported; LLaVA 1.5 is")
    has_class = projector in ("mlp", "internvl")
    expect(header, "v.patch_embd.weight", (patch, patch, CHANNELS, n_embd))
    if "v.patch_embd.bias" in header.shapes:
        expect(header, "v.patch_embd.bias", (n_embd,))
    n_patches = (side // patch) ** 2
    expect(header, "v.position_embd.weight", (n_embd, n_patches + has_class))
    if has_class:
        expect(header, "v.class_embd", (n_embd,))
    for name in ("v.pre_ln", "v.post_ln"):
        if f"{name}.weight" in header.shapes:
            expect(header, f"{name}.weight", (n_embd,))
            expect(header, f"{name}.bias", (n_embd,))
    _check_tile_projector(header, projector, n_embd, n_embd * scale**2, n_out)
    n_layer = n_layer_of(header)
    if projector == "mlp" and n_layer + 1 == _CLIP_LAYERS.get(n_embd):
        raise header.fail(
            f"clip.vision.block_count is {n_layer}; CLIP of width {n_embd} has {n_layer + 1}, and "
            "all but the last are run: the file was written without the last layer"
        )
    for layer in range(n_layer):
        check_attention(header, f"v.blk.{layer}.", n_embd)
        check_layer(header, f"v.blk.{layer}.", n_embd, windowed=False)
        for name in (f"v.blk.{layer}.ls1.weight", f"v.blk.{layer}.ls2.weight"):
            if name in header.shapes:
                expect(header, name, (n_embd,))


def _check_tile_projector(
    header: Header, projector: str, n_embd: int, n_merged: int, n_out: int
) -> None:
    if projector == "gemma3":
        expect(header, "mm.input_projection.weight", (n_out, n_embd))
        expect(header, "mm.soft_emb_norm.weight", (n_embd,))
    elif projector == "idefics3":
        expect(header, "mm.model.fc.weight", (n_merged, n_out))
    elif projector == "mlp":
        n_between = header.shapes.get("mm.0.weight", (0, 0))[1]
        expect(header, "mm.0.weight", (n_embd, n_between))
        expect(header, "mm.0.bias", (n_between,))
        expect(header, "mm.2.weight", (n_between, n_out))
        expect(header, "mm.2.bias", (n_out,))
    else:
        n_between = header.shapes.get("mm.model.mlp.1.weight", (0, 0))[1]
        for kind in ("weight", "bias"):
            expect(header, f"mm.model.mlp.0.{kind}", (n_merged,))
        expect(header, "mm.model.mlp.1.weight", (n_merged, n_between))
        expect(header, "mm.model.mlp.1.bias", (n_between,))
        expect(header, "mm.model.mlp.3.weight", (n_between, n_out))
        expect(header, "mm.model.mlp.3.bias", (n_out,))


def check_gemma4_tower(header: Header) -> None:
    """Checks the tower of EmbeddingGemma 2."""
    n_embd = check_heads(header)
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    header.positive("clip.vision.image_size")
    if "clip.vision.projector.scale_factor" in header.types:
        header.positive("clip.vision.projector.scale_factor")
    scale = scale_factor("gemma4v", header.metadata)
    side, n_tokens = gemma4_sizes(header.metadata)
    if side > _MAX_TILE or not 1 <= n_tokens <= _GEMMA4_MAX_TOKENS:
        raise header.fail(
            f"a picture gives {n_tokens} rows of {side} x {side} pixels; 1 to "
            f"{_GEMMA4_MAX_TOKENS} of up to {_MAX_TILE} are supported"
        )
    n_positions = header.shapes.get("v.position_embd.weight", (0, 0))[1]
    if n_positions < n_tokens * scale:
        raise header.fail(
            f"v.position_embd.weight has {n_positions} rows per axis; a picture may need "
            f"{n_tokens * scale}"
        )
    shapes: dict[str, Shape] = {
        "v.patch_embd.weight": (patch, patch, CHANNELS, n_embd),
        "v.position_embd.weight": (n_embd, n_positions, 2),
        "mm.input_projection.weight": (n_embd, n_out),
    }
    standardised = [name for name in ("v.std_bias", "v.std_scale") if name in header.shapes]
    if len(standardised) == 1:
        raise header.fail(f"it has {standardised[0]} without its counterpart")
    shapes |= dict.fromkeys(standardised, (n_embd,))
    for layer in range(n_layer_of(header)):
        shapes |= _gemma4_layer(header, f"v.blk.{layer}.", n_embd)
    for name, shape in shapes.items():
        expect(header, name, shape)
    for name in header.shapes:
        owner, _, kind = name.rpartition(".")
        if kind in _CLAMPS and f"{owner}.weight" in header.shapes:
            expect(header, name, (1,))
        elif name.startswith(("v.", "mm.")) and not name.startswith("mm.a.") and name not in shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")


def _gemma4_layer(header: Header, prefix: str, n_embd: int) -> dict[str, Shape]:
    head = n_embd // header.positive("clip.vision.attention.head_count")
    n_ff = header.shapes.get(f"{prefix}ffn_up.weight", (0, 0))[1]
    shapes: dict[str, Shape] = {
        "ffn_gate": (n_embd, n_ff),
        "ffn_up": (n_embd, n_ff),
        "ffn_down": (n_ff, n_embd),
    }
    shapes |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (n_embd, n_embd))
    shapes |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (head,))
    shapes |= dict.fromkeys(("ln1", "ln2", "attn_post_norm", "ffn_post_norm"), (n_embd,))
    return {f"{prefix}{name}.weight": shape for name, shape in shapes.items()}
