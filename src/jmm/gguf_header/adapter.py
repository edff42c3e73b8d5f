"""Checks of a LoRA adapter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmm.gguf_header.file import Header

PROJECTOR_WEIGHT = "multi_vector_projector.weight"
_EMBEDDINGS = "token_embd.weight"


def check_adapter(header: Header, text: Header) -> None:
    """Checks a LoRA adapter and that it belongs to a language model.

    Raises:
        ModelLoadError: It is another kind of file, or belongs to another architecture.
    """
    for key, kind, value in (
        ("general.type", "str", "adapter"),
        ("general.architecture", "str", text.architecture),
        ("adapter.type", "str", "lora"),
    ):
        if header.types.get(key) != kind or header.metadata[key] != value:
            found = header.metadata.get(key)
            raise header.fail(f"{key} is {found!r}; an adapter of {text.path} has {value!r}")
    alpha = header.metadata.get("adapter.lora.alpha")
    if header.types.get("adapter.lora.alpha") != "f32" or not math.isfinite(alpha or 0.0):
        raise header.fail(f"adapter.lora.alpha is {alpha!r}; a finite float is needed")
    if "adapter.alora.invocation_tokens" in header.types:
        raise header.fail("activated LoRA (alora) is not supported")
    header.check_dtypes()
    if not header.shapes:
        raise header.fail("the adapter changes nothing: it has no tensors")
    for name in header.shapes:
        _check_half(header, name, text)


def _check_half(header: Header, name: str, text: Header) -> None:
    """One tensor of an adapter; ``lora_a`` checks the pair."""
    base, _, half = name.rpartition(".lora_")
    if half not in ("a", "b"):
        raise header.fail(f"tensor {name} is no half of a LoRA pair; others cannot be applied")
    other = f"{base}.lora_{'b' if half == 'a' else 'a'}"
    if other not in header.shapes:
        raise header.fail(f"it has {name} without its counterpart")
    if base == PROJECTOR_WEIGHT or half == "b":
        return
    if base not in text.shapes:
        raise header.fail(f"{text.path} has no tensor {base}, which the adapter changes")
    n_in, n_out, *rest = text.shapes[base]
    if n_out == 1:
        raise header.fail(f"tensor {base} is no matrix; LoRA pairs of others cannot be applied")
    low, high = header.shapes[name], header.shapes[other]
    rank = high[0]
    # llama.cpp keeps the pair of the embeddings so that a token's row is one of lora_a's
    wanted = (rank, n_out, *rest) if base == _EMBEDDINGS else (n_in, rank, *rest)
    if low != wanted or high != (rank, n_in if base == _EMBEDDINGS else n_out, *rest):
        raise header.fail(f"{name} is {low} and {other} is {high}; they do not fit {base}")
