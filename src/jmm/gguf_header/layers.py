"""Checks that towers of several families share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmm.gguf_header.file import expect

if TYPE_CHECKING:
    from jmm.gguf_header.file import Header

_MAX_TOWER_LAYERS = 48  # more would not fit in libmtmd's graph


def check_width(header: Header, text: Header) -> None:
    """Raises ModelLoadError unless the language model takes rows of the tower's width."""
    n_embd = text.positive(f"{text.architecture}.embedding_length")
    n_out = header.positive("clip.vision.projection_dim")
    if n_embd != n_out:
        raise header.fail(
            f"it gives rows of {n_out} numbers, the language model {text.path} takes {n_embd}; "
            "the two files belong to different models"
        )


def check_heads(header: Header) -> int:
    """The tower's width."""
    n_embd = header.positive("clip.vision.embedding_length")
    n_head = header.positive("clip.vision.attention.head_count")
    if n_embd % n_head or (n_embd // n_head) % 4:
        raise header.fail(f"{n_embd} components cannot be split into {n_head} heads")
    head = header.metadata.get("clip.vision.attention.head_dim", n_embd // n_head)
    if head != n_embd // n_head:
        raise header.fail(f"head_dim is {head}; {n_embd} components have {n_embd // n_head}")
    return n_embd


def n_layer_of(header: Header) -> int:
    """Number of the tower's layers."""
    n_layer = header.positive("clip.vision.block_count")
    if n_layer > _MAX_TOWER_LAYERS:
        raise header.fail(
            f"clip.vision.block_count is {n_layer}; at most {_MAX_TOWER_LAYERS} are supported"
        )
    return n_layer


def check_attention(header: Header, prefix: str, n_embd: int) -> None:
    """Checks the matrices of one layer's queries, keys and values."""
    for name in ("attn_q", "attn_k", "attn_v"):
        expect(header, f"{prefix}{name}.weight", (n_embd, n_embd))
        expect(header, f"{prefix}{name}.bias", (n_embd,))


def check_layer(header: Header, prefix: str, n_embd: int, *, windowed: bool) -> None:
    """Checks the rest of one layer; ``windowed`` layers have gates, and norms without biases."""
    expect(header, f"{prefix}attn_out.weight", (n_embd, n_embd))
    expect(header, f"{prefix}attn_out.bias", (n_embd,))
    for name in ("ln1", "ln2"):
        expect(header, f"{prefix}{name}.weight", (n_embd,))
        if not windowed:
            expect(header, f"{prefix}{name}.bias", (n_embd,))
    # Old converters named the two the other way round, which libmtmd tells by their shape.
    up, down = f"{prefix}ffn_up", f"{prefix}ffn_down"
    if header.shapes.get(f"{down}.weight", ())[:1] == (n_embd,):
        up, down = down, up
    n_ff = header.shapes.get(f"{up}.weight", (0, 0))[1]
    if n_ff == n_embd:
        raise header.fail(f"{up}.weight is square, which cannot be told from its counterpart")
    expect(header, f"{up}.weight", (n_embd, n_ff))
    expect(header, f"{down}.weight", (n_ff, n_embd))
    expect(header, f"{up}.bias", (n_ff,))
    expect(header, f"{down}.bias", (n_embd,))
    if windowed:
        expect(header, f"{prefix}ffn_gate.weight", (n_embd, n_ff))
        expect(header, f"{prefix}ffn_gate.bias", (n_ff,))
