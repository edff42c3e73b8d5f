"""What the references of further Qwen families compute. Needs torch and transformers.

The prompts are written here as whole strings, as the references write them, and become ids
through transformers' tokenizer.

Example:
    >>> right = results()
    >>> right["gme-qwen2-vl/picture/vector"].shape
    (64,)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from support import family_calls, golden, qwen3, qwen3_reference, sequences, tiny
from support.family_calls import (
    COLQWEN25,
    COLQWEN25_MODEL,
    FAMILIES,
    GRID,
    MODEL,
    QWEN3_GRIDS,
    TEXT,
    colqwen_projector,
    qwen3_patches,
)
from support.reference import Reference, tokenizer
from support.sequences import Grid

AUGMENTATION = "<|endoftext|>" * 10
DESCRIBE = "<|im_start|>user\n{picture}Describe the image.<|im_end|><|endoftext|>"
GME = "You are a helpful assistant."
QWEN3 = "Represent the user's input."


def _gme(content: str, instruction: str = GME) -> str:
    return _qwen3(content, instruction) + "<|endoftext|>"


def _qwen3(content: str, instruction: str = QWEN3) -> str:
    return (
        f"<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


PROMPTS: dict[str, dict[str, str]] = {
    "gme-qwen2-vl": {
        "query": _gme("{text}"),
        "text-to-image": _gme("{text}", "Find an image that matches the given text."),
        "document": _gme("{text}"),
        "picture": _gme("{picture}"),
        "mixed": _gme("{picture}{text}"),
    },
    "colqwen2": {
        "query": "{text}" + AUGMENTATION,
        "document": "{text}",
        "picture": DESCRIBE,
    },
    "colqwen2.5": {
        "query": "{text}" + AUGMENTATION,
        "document": "{text}",
        "picture": DESCRIBE,
    },
    "colqwen2-hf": {"query": "Query: {text}" + AUGMENTATION + "\n", "picture": DESCRIBE},
    "qwen3-vl-embedding": {
        "query": _qwen3("{text}", "Retrieve images or text relevant to the user's query."),
        "text-matching": _qwen3("{text}"),
        "document": _qwen3("{text}"),
        "picture": _qwen3("{picture}"),
        "mixed": _qwen3("{picture}{text}"),
    },
}

Hidden = Callable[[NDArray[np.int64], NDArray[np.float32] | None], NDArray[np.floating]]


def ids_of(prompt: str, n_pads: int) -> NDArray[np.int64]:
    """Ids of a filled prompt; TEXT holds no special tokens."""
    picture = "<|vision_start|>" + "<|image_pad|>" * n_pads + "<|vision_end|>"
    filled = prompt.replace("{text}", TEXT).replace("{picture}", picture)
    tokens = tokenizer(MODEL, True).encode(filled, add_special_tokens=False).tokens
    return np.array([MODEL.vocab.ids[token] for token in tokens], np.int64)


@torch.inference_mode()
def hidden_without_grid(
    net: Any,
    ids: NDArray[np.int64],
    patches: NDArray[np.float32] | None,
    grid: Grid = GRID,
) -> NDArray[np.floating]:
    """The forward call of gme_inference.py, which hands the model embeddings alone."""
    tokens = torch.from_numpy(ids)[None]
    embedded = net.get_input_embeddings()(tokens)
    if patches is not None:
        thw = torch.from_numpy(sequences.grid_thw([grid]))
        rows = net.visual(torch.from_numpy(patches), grid_thw=thw).pooler_output
        embedded[tokens == net.config.image_token_id] = rows
    mask = torch.ones_like(tokens)
    out = net(inputs_embeds=embedded, attention_mask=mask, use_cache=False)
    return out.last_hidden_state[0].numpy()


@lru_cache
def qwen2_net() -> Reference:
    """The tiny Qwen2-VL model."""
    return Reference(MODEL, golden.weights(MODEL.name))


@lru_cache
def qwen25_net() -> Reference:
    """The tiny Qwen2.5-VL model."""
    return Reference(COLQWEN25_MODEL, golden.weights(COLQWEN25_MODEL.name))


@lru_cache
def qwen3_net() -> qwen3_reference.Reference:
    """The tiny Qwen3-VL model."""
    return qwen3_reference.Reference(qwen3.golden_weights())


def _hidden(family: str) -> Hidden:
    if family == "qwen3-vl-embedding":
        return lambda ids, patches: qwen3_net().hidden(ids, patches, [GRID])
    if FAMILIES[family].in_order:
        return lambda ids, patches: hidden_without_grid(qwen2_net().net.model, ids, patches)
    net = qwen25_net() if family == COLQWEN25 else qwen2_net()
    return lambda ids, patches: net.hidden(ids, patches, [family_calls.grid(family)])


def results() -> dict[str, NDArray[np.generic]]:
    """Ids, and the vector (last token, unit length) or token rows of each call of each family.

    Returns:
        ``{"family/call/ids": int32 [n], "family/call/vector": float32 [dim]}``, or
        ``"family/call/tokens"``, float32 ``[n, dim]``; and ``"qwen3/vit/HxW"``.
    """
    found: dict[str, NDArray[np.generic]] = {}
    for family, prompts in PROMPTS.items():
        is_qwen3 = family == "qwen3-vl-embedding"
        pixels = family_calls.picture(family)
        patches = qwen3_patches(GRID) if is_qwen3 else tiny.patches(pixels)
        for call, prompt in prompts.items():
            ids = ids_of(prompt, sequences.n_merged(family_calls.grid(family)))
            states = _hidden(family)(ids, patches if "{picture}" in prompt else None)
            found[f"{family}/{call}/ids"] = ids.astype(np.int32)
            if family.startswith("colqwen"):
                weight, bias = colqwen_projector(family)
                rows = states.astype(np.float64) @ weight.T.astype(np.float64) + bias
                unit = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
                found[f"{family}/{call}/tokens"] = unit.astype(np.float32)
            else:
                found[f"{family}/{call}/vector"] = sequences.unit_mean(states, len(ids) - 1)
    for grid in QWEN3_GRIDS:
        found["qwen3/vit/{}x{}".format(*grid)] = qwen3_net().vit(qwen3_patches(grid), [grid])
    return found
