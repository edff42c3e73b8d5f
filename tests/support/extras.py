"""What a tiny model may have beside its weights: a multi-vector projector, and LoRA adapters.

Made like the weights of `tiny`, so that a seed gives the same bits on every machine.

Example:
    >>> model = tiny.MODELS["qwen25_small"]
    >>> projector(model).weight.shape
    (16, 64)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from support import gguf_writer
from support.tiny import TinyModel, Weights

WEIGHT = "multi_vector_projector.weight"
BIAS = "multi_vector_projector.bias"
DIM = 16
RANK = 4
ALPHA = 6.0

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Pairs = dict[str, tuple[Float32, Float32]]

_TEXT = "model.language_model.layers."
_ADAPTED = ("_proj.weight",)


def _uniform(rng: np.random.Generator, std: float, *shape: int) -> Float32:
    return ((2.0 * rng.random(shape) - 1.0) * std * np.sqrt(3.0)).astype(np.float32)


@dataclass(frozen=True)
class Projector:
    """A linear layer: weight float32 [dim, hidden], bias float32 [dim]."""

    weight: Float32
    bias: Float32

    def __call__(self, hidden: NDArray[np.floating], *, normalize: bool = True) -> Float64:
        """Token vectors of hidden states [n, hidden], in double."""
        rows = hidden.astype(np.float64) @ self.weight.T.astype(np.float64) + self.bias
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if normalize else rows

    def tensors(self, weight: str = "F32", bias: str = "F32") -> gguf_writer.Typed:
        """For the writers, with their types."""
        return {WEIGHT: (self.weight, weight), BIAS: (self.bias, bias)}


def projector(model: TinyModel, seed: int = 0) -> Projector:
    """A seeded projector to `DIM` numbers."""
    rng = np.random.Generator(np.random.PCG64((model.seed, seed, 1)))
    return Projector(_uniform(rng, model.hidden**-0.5, DIM, model.hidden), _uniform(rng, 0.2, DIM))


def adapter(model: TinyModel, weights: Weights, seed: int, gain: float = 1.0) -> Pairs:
    """A seeded pair for every matrix of the language model's layers and for the projector.

    Args:
        model: Dimensions.
        weights: What ``tiny.weights(model)`` gives.
        seed: Of this adapter.
        gain: How large the change is beside the weights; 1 moves vectors plainly.

    Returns:
        transformers' parameter names, and `WEIGHT`, to ``(a [rank, n_in], b [n_out, rank])``.
    """
    rng = np.random.Generator(np.random.PCG64((model.seed, seed, 2)))
    shapes = {
        name: array.shape
        for name, array in weights.items()
        if name.startswith(_TEXT) and name.endswith(_ADAPTED)
    }
    shapes[WEIGHT] = (DIM, model.hidden)
    return {
        name: (
            _uniform(rng, n_in**-0.5, RANK, n_in),
            _uniform(rng, gain * RANK**0.5 / ALPHA / 2, n_out, RANK),
        )
        for name, (n_out, n_in) in shapes.items()
    }


def native_names(pairs: Pairs) -> Pairs:
    """The same pairs under the names of the GGUF file."""
    return {
        name if name == WEIGHT else next(gguf_writer.text_tensors({name: pair[0]}))[0]: pair
        for name, pair in pairs.items()
    }


def merged(
    weights: Weights, projector_: Projector, pairs: Pairs, alpha: float = ALPHA
) -> tuple[Weights, Projector]:
    """The weights with the change of an adapter, ``w + alpha / rank * b @ a`` in double."""
    changed: Mapping[str, Float32] = {
        name: (array.astype(np.float64) + alpha / RANK * high.astype(np.float64) @ low).astype(
            np.float32
        )
        for name, array in (*weights.items(), (WEIGHT, projector_.weight))
        if name in pairs
        for low, high in [pairs[name]]
    }
    rest = {name: changed.get(name, array) for name, array in weights.items()}
    return rest, Projector(changed.get(WEIGHT, projector_.weight), projector_.bias)
