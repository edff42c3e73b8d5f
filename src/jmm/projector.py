"""The multi-vector projector: one linear layer on every token's hidden state.

It lies in the language model's file, in the mmproj file or in a file of its own, always as
``multi_vector_projector.weight`` ``[n_embd, dim]`` (GGUF order) and
``multi_vector_projector.bias`` ``[dim]``. A LoRA adapter may change the weight by the pair
``multi_vector_projector.weight.lora_a`` and ``.lora_b``.

Source: jina-embeddings-v4's modelling code (a Linear with bias; adapted by each task's LoRA).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jmm.errors import InputError
from jmm.gguf_header import PROJECTOR_WEIGHT as WEIGHT

if TYPE_CHECKING:
    import numpy.typing as npt

    from jmm.gguf_header import Header

BIAS = "multi_vector_projector.bias"


@dataclass(frozen=True, eq=False)
class Projector:
    """What turns a hidden state into a token's vector: ``state @ weight + bias``.

    Attributes:
        weight: float32 ``[n_embd, dim]``, C-contiguous.
        bias: float32 ``[dim]``.
    """

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    @property
    def dim(self) -> int:
        """Components of a token's vector."""
        return int(self.weight.shape[1])

    def adapted(self, adapter: Header) -> Projector:
        """With the change that a LoRA adapter makes: ``weight + alpha / rank * a @ b``.

        Raises:
            ModelLoadError: The adapter's pair does not fit, or its product is not finite.
        """
        names = (f"{WEIGHT}.lora_a", f"{WEIGHT}.lora_b")
        if names[0] not in adapter.shapes:
            return self
        low, high = (adapter.array(name, 2) for name in names)  # [rank, n_embd], [dim, rank]
        if low.shape[1:] != self.weight.shape[:1] or high.shape != (self.dim, low.shape[0]):
            raise adapter.fail(
                f"{names[0]} and {names[1]} are {list(low.shape)} and {list(high.shape)}; they "
                f"do not fit a projector from {self.weight.shape[0]} to {self.dim}"
            )
        scale = adapter.lora_scale(low.shape[0])
        change = scale * (high.astype(np.float64) @ low.astype(np.float64)).T
        with np.errstate(over="ignore"):
            weight = np.ascontiguousarray(self.weight + change, np.float32)
        if not np.isfinite(weight).all():
            raise adapter.fail(
                f"{names[0]} and {names[1]} leave the projector without finite numbers"
            )
        return Projector(weight, self.bias)


def find(*headers: Header | None) -> Projector | None:
    """Reads the projector from the first file that has one.

    Raises:
        ModelLoadError: Its tensors have a type or shape that cannot be used.
    """
    for header in headers:
        if header is not None and WEIGHT in header.shapes:
            return read(header)
    return None


def read(header: Header) -> Projector:
    """Reads the projector of one file.

    Raises:
        ModelLoadError: The file has none, or it cannot be used.
    """
    for name in (WEIGHT, BIAS):
        if name not in header.shapes:
            raise header.fail(f"the file has no tensor {name}, of the multi-vector projector")
    weight, bias = header.array(WEIGHT, 2), header.array(BIAS, 1)
    if bias.shape != weight.shape[:1]:
        raise header.fail(f"tensor {BIAS} has shape {list(bias.shape)}; {len(weight)} is needed")
    return Projector(np.ascontiguousarray(weight.T), bias)


def needed(projector: Projector | None, path: str) -> Projector:
    """The projector.

    Raises:
        InputError: There is none.
    """
    if projector is None:
        raise InputError(
            f"{path} gives no token vectors: neither it nor its mmproj has the tensor {WEIGHT}; "
            "pass a file that has it as projector="
        )
    return projector
