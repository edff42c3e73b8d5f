"""What jina-embeddings-v4 gives for a tiny checkpoint, computed by transformers in double.

Needs torch and transformers. The adapter is added to the weights, which is what LoRA means.

Example:
    >>> right = Contract(tiny.MODELS["qwen25_small"], "code").results()
    >>> right["query", True].shape
    (32, 24)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from support import checkpoint, sequences, tiny
from support.jina_calls import GRID, TEXT
from support.reference import Reference
from support.tiny import TinyModel


class Contract:
    """One task.

    Args:
        model: Dimensions and seed.
        task: One of `checkpoint.TASKS`.
        dtype: Of the checkpoint's file, to whose numbers all weights are rounded first.
    """

    def __init__(self, model: TinyModel, task: str, dtype: checkpoint.Dtype = "F32") -> None:
        weights = checkpoint.merged(model, tiny.weights(model), task, dtype)
        self.model = model
        self.task = task
        self._weight = weights.pop(f"{checkpoint.PROJECTOR}.weight").astype(np.float64)
        self._bias = weights.pop(f"{checkpoint.PROJECTOR}.bias").astype(np.float64)
        self._net = Reference(model, weights, double=True)

    def results(self) -> dict[tuple[str, bool], NDArray[np.float32]]:
        """``{(call, multi_vector): vector [dim] or tokens [n, PROJECTOR_DIM]}``."""
        passage = "Query: " if self.task == "text-matching" else "Passage: "
        results = {}
        for call, prefix in (("query", "Query: "), ("document", passage)):
            hidden = self._net.hidden(self._net.tokenize(prefix + TEXT))
            results[call, False] = sequences.unit_mean(hidden)
            results[call, True] = self._tokens(hidden)
        ids = self._net.image_ids(GRID)
        hidden = self._net.hidden(ids, tiny.patches(tiny.picture(*GRID)), [GRID])
        results["picture", False] = sequences.unit_mean(
            hidden, *sequences.vision_span(self.model, ids)
        )
        results["picture", True] = self._tokens(hidden)
        return results

    def _tokens(self, hidden: NDArray[np.float64]) -> NDArray[np.float32]:
        rows = hidden @ self._weight.T + self._bias
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
