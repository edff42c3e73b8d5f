"""Checks of a vision tower."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jmm.gguf_header.file import PROJECTOR_TYPE, projector_type
from jmm.gguf_header.layers import check_width
from jmm.gguf_header.qwen_tower import (
    PROJECTORS,
    check_qwen2_tower,
    check_qwen3_tower,
    deepstack_layers,
)
from jmm.gguf_header.text import n_deepstack
from jmm.gguf_header.tile_tower import (
    TILE_PROJECTORS,
    check_gemma4_tower,
    check_tile_pair,
    check_tile_tower,
)

if TYPE_CHECKING:
    from jmm.gguf_header.file import Header

_LANGUAGE_MODELS = {
    "qwen2vl_merger": "qwen2vl",
    "qwen2.5vl_merger": "qwen2vl",
    "qwen3vl_merger": "qwen3vl",
}
_REQUIRED = (
    "clip.vision.projection_dim",
    "clip.vision.image_size",
    "clip.vision.patch_size",
    "clip.vision.embedding_length",
    "clip.vision.feed_forward_length",
    "clip.vision.block_count",
    "clip.vision.attention.head_count",
    "clip.vision.attention.layer_norm_epsilon",
    "clip.vision.image_mean",
    "clip.vision.image_std",
)
_OPTIONAL = (
    "clip.vision.spatial_merge_size",
    "clip.vision.window_size",
    "clip.vision.image_min_pixels",
    "clip.vision.image_max_pixels",
)


def check_mmproj(header: Header, text: Header | None = None) -> None:
    """Checks a vision tower and, if one is given, that it belongs to a language model.

    Raises:
        ModelLoadError: It is another kind of file, of a family that is not supported, does not
            fit the language model, or its numbers contradict each other.
    """
    if header.architecture != "clip":
        raise header.fail(
            f"this is a language model of architecture {header.architecture!r}, not a vision "
            "tower; mmproj= takes the mmproj file"
        )
    for key in _REQUIRED:
        if key not in header.types:
            raise header.fail(f"{key} is missing")
    for key in PROJECTOR_TYPE:
        if header.types.get(key, "str") != "str":
            raise header.fail(f"{key} is {header.metadata[key]!r}; a text is needed")
    if not header.metadata.get("clip.has_vision_encoder", False):
        raise header.fail("the file has no vision tower")
    projector = projector_type(header.metadata)
    if projector not in PROJECTORS and projector not in TILE_PROJECTORS:
        families = ", ".join((*PROJECTORS.values(), *TILE_PROJECTORS.values()))
        raise header.fail(f"projector type {projector!r} is not supported; {families} are")
    header.check_dtypes(vectors="f32")
    header.epsilon("clip.vision.attention.layer_norm_epsilon")
    header.numbers("clip.vision.image_mean", above=-math.inf)
    header.numbers("clip.vision.image_std", above=0)
    for key in _OPTIONAL:
        if key in header.types:
            header.positive(key)
    if projector in TILE_PROJECTORS:
        if text is not None:
            check_tile_pair(header, text, projector)
        if projector == "gemma4v":
            check_gemma4_tower(header)
        else:
            check_tile_tower(header, projector)
        return
    if text is not None:
        _check_pair(header, text, _LANGUAGE_MODELS[projector])
    if projector == "qwen3vl_merger":
        check_qwen3_tower(header)
    else:
        check_qwen2_tower(header, windowed=projector == "qwen2.5vl_merger")


def _check_pair(header: Header, text: Header, architecture: str) -> None:
    if text.architecture != architecture:
        raise header.fail(
            f"the language model {text.path} has architecture {text.architecture!r}; this vision "
            f"tower belongs to a {architecture} model"
        )
    n_given, n_taken = len(deepstack_layers(header)), n_deepstack(text)
    if n_given != n_taken:
        raise header.fail(
            f"{n_given} of its layers feed layers of a language model, and {text.path} takes "
            f"{n_taken}; the two files belong to different models"
        )
    check_width(header, text)
