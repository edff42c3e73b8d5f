"""Feed-forward layers widened with zeros, until their rows are whole blocks.

The new rows of ``ffn_up`` and ``ffn_gate`` and of their biases are zero, and so are the columns
of ``ffn_down`` that meet what comes of them: no result changes, whatever the activation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmm.quantizer import layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jmm.gguf_header import Header

# Language models whose graph has nothing but the activation between the matrices and takes their
# width for nothing else. Other graphs normalise the inner row, keep its greatest values alone, or
# have both halves in one matrix. Source: src/models of llama.cpp b11549.
_ARCHITECTURES = (
    *("gemma", "gemma2", "gemma3", "granite", "llama", "mistral3", "olmo2"),
    *("qwen2", "qwen2vl", "qwen3", "qwen3vl", "smollm3", "starcoder2"),
)
_PLAIN = re.compile(r"blk\.\d+\.(?!ffn_)|blk\.\d+\.ffn_(up|gate|down|(post_)?norm)\.(weight|bias)$")
_TOWER_KEY = "clip.vision.feed_forward_length"


@dataclass(frozen=True)
class FeedForward:
    """One layer.

    Attributes:
        inner: Names of the matrices ``[n_embd, width]``, without ``.weight``.
        outer: Name of the matrix ``[width, n_embd]``, without ``.weight``.
        n_embd: Numbers of a row that comes in and goes out.
        width: Numbers of a row between.
    """

    inner: tuple[str, ...]
    outer: str
    n_embd: int
    width: int

    def widened(self, header: Header, width: int) -> dict[str, tuple[int, ...]]:
        """New shapes of its tensors."""
        shapes: dict[str, tuple[int, ...]] = {f"{self.outer}.weight": (width, self.n_embd)}
        for name in self.inner:
            shapes[f"{name}.weight"] = (self.n_embd, width)
            if f"{name}.bias" in header.shapes:
                shapes[f"{name}.bias"] = (width,)
        return shapes


def find(header: Header) -> list[FeedForward]:
    """The layers that may be widened; none where a graph does not allow it."""
    return _of_tower(header) if header.architecture == "clip" else _of_text(header)


def lengths(header: Header, layers: Iterable[FeedForward], multiple: int) -> dict[str, bytes]:
    """The keys of a header that tell the layers' widths, once they are multiples of ``multiple``.

    Returns:
        As `layout.Layout.keys`; empty where the key tells another number.
    """
    if header.architecture == "clip":
        written = header.metadata[_TOWER_KEY]  # Qwen2-VL's converter writes another number there
        if {layer.width for layer in layers} != {written}:
            return {}
        return {_TOWER_KEY: layout.u32(_TOWER_KEY, layout.aligned(written, multiple))}
    key = _text_key(header)
    written = header.metadata[key]
    if isinstance(written, list):
        wide = [layout.aligned(width, multiple) for width in written]
        return {key: layout.u32_array(key, wide)}
    return {key: layout.u32(key, layout.aligned(written, multiple))}


def _of_tower(header: Header) -> list[FeedForward]:
    n_embd, layers = header.metadata["clip.vision.embedding_length"], []
    for index in range(header.metadata["clip.vision.block_count"]):
        up, gate, down = (f"v.blk.{index}.ffn_{part}" for part in ("up", "gate", "down"))
        if header.shapes[f"{down}.weight"][0] == n_embd:  # named the other way round
            up, down = down, up
        inner = tuple(name for name in (up, gate) if f"{name}.weight" in header.shapes)
        layers.append(FeedForward(inner, down, n_embd, header.shapes[f"{up}.weight"][1]))
    return layers


def _text_key(header: Header) -> str:
    return f"{header.architecture}.feed_forward_length"


def _of_text(header: Header) -> list[FeedForward]:
    is_plain = all(_PLAIN.match(name) for name in header.shapes if name.startswith("blk."))
    if header.architecture not in _ARCHITECTURES or not is_plain:
        return []
    layers = [_layer(header, index, width) for index, width in enumerate(_widths(header))]
    found = [layer for layer in layers if layer is not None]
    return found if len(found) == len(layers) else []


def _widths(header: Header) -> list[int]:
    """What the key tells per layer; empty where it cannot be rewritten."""
    key, n_layer = _text_key(header), header.metadata.get(f"{header.architecture}.block_count")
    kind, written = header.types.get(key), header.metadata.get(key)
    if not isinstance(n_layer, int) or n_layer > len(header.shapes):
        return []
    if kind == "u32":
        return [int(written or 0)] * n_layer
    is_list = kind in ("arr[u32]", "arr[i32]") and isinstance(written, list)
    return list(written or ()) if is_list and len(written or ()) == n_layer else []


def _layer(header: Header, index: int, width: int) -> FeedForward | None:
    """A language model's layer, None if its tensors are others."""
    up, gate, down = (f"blk.{index}.ffn_{part}" for part in ("up", "gate", "down"))
    n_embd = header.shapes.get(f"{up}.weight", (0,))[0]
    inner = tuple(name for name in (up, gate) if f"{name}.weight" in header.shapes)
    wanted = {f"{down}.weight": (width, n_embd, 1, 1)}
    for name in inner:
        wanted |= {f"{name}.weight": (n_embd, width, 1, 1), f"{name}.bias": (width, 1, 1, 1)}
    fits = all(
        header.shapes.get(name, shape if name.endswith(".bias") else None) == shape
        for name, shape in wanted.items()
    )
    return FeedForward(inner, down, n_embd, width) if fits and up in inner else None
