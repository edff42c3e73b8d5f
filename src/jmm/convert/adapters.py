"""The LoRA adapters of a checkpoint: one file that holds the pairs of every task.

Source: jina-embeddings-v4's ``adapters/`` folder. Its tensors are named
``base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.retrieval.weight``, and
``base_model.model.multi_vector_projector.lora_A.retrieval.weight`` for the projector; A is
``[rank, inputs]``, B ``[outputs, rank]``, and a pair adds ``lora_alpha / rank * B @ A``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmm.convert import layout
from jmm.convert.json_file import Section, read
from jmm.convert.tensors import Tensor, read_header
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

FOLDER = "adapters"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"

_NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.(?P<task>.+)\.weight")
_PLAIN = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save")


@dataclass(frozen=True)
class Pair:
    """What one task adds to one weight."""

    low: Tensor
    high: Tensor

    def check(self, weight: Tensor) -> None:
        """Raises ModelLoadError unless it fits the weight."""
        rank = self.low.shape[0]
        for tensor, needed in (
            (self.low, (rank, weight.shape[1])),
            (self.high, (weight.shape[0], rank)),
        ):
            if tensor.shape != needed:
                raise tensor.fail(
                    f"has shape {list(tensor.shape)}; {list(needed)} fits {weight.name}"
                )

    def change(self, alpha: float) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """B, scaled, and A: their product is what the weight changes by."""
        return self.high.array() * (alpha / self.low.shape[0]), self.low.array()


@dataclass(frozen=True)
class Adapters:
    """All tasks' pairs.

    Attributes:
        alpha: ``lora_alpha``.
        tasks: ``{task: {canonical name of the weight: pair}}``.
    """

    alpha: float
    tasks: Mapping[str, Mapping[str, Pair]]


def read_adapters(folder: Path, tasks: Sequence[str], found: Mapping[str, Tensor]) -> Adapters:
    """Reads the headers of the adapters and checks them against the checkpoint.

    Args:
        folder: The checkpoint.
        tasks: Those that config.json names.
        found: The checkpoint's tensors by canonical name.

    Raises:
        ModelLoadError: A file or a pair is missing, unknown, or does not fit its weight.
    """
    settings = Section(folder / FOLDER / CONFIG, read(folder / FOLDER / CONFIG))
    for key in _PLAIN:
        if settings.values.get(key):
            raise settings.fail(key, "only plain LoRA is supported")
    path = folder / FOLDER / WEIGHTS
    sides: dict[str, dict[str, dict[str, Tensor]]] = {task: {} for task in tasks}
    for name, tensor in read_header(path).items():
        match = _NAME.fullmatch(name)
        weight = layout.canonical(f"{match['module']}.weight") if match else None
        if match is None or weight is None or weight not in found or not _is_adaptable(weight):
            raise tensor.fail("adapts no linear layer of the language model")
        if match["task"] not in sides:
            raise tensor.fail(f"is of task {match['task']}; config.json has {', '.join(tasks)}")
        sides[match["task"]].setdefault(weight, {})[match["side"]] = tensor
    weights = sorted({weight for pairs in sides.values() for weight in pairs})
    if not weights:
        raise ModelLoadError(f"{path}: it holds no adapter")
    return Adapters(
        settings.number("lora_alpha"),
        {task: dict(_pairs(path, task, sides[task], weights, found)) for task in tasks},
    )


def _is_adaptable(weight: str) -> bool:
    module = weight.removesuffix(".weight")
    return module == layout.PROJECTOR or module.split(".", 2)[-1] in layout.LINEAR


def _pairs(
    path: Path,
    task: str,
    sides: Mapping[str, Mapping[str, Tensor]],
    weights: Sequence[str],
    found: Mapping[str, Tensor],
) -> Iterator[tuple[str, Pair]]:
    for weight in weights:
        for side in "AB":
            if side not in sides.get(weight, {}):
                raise ModelLoadError(f"{path}: lora_{side} of task {task} for {weight} is missing")
        pair = Pair(sides[weight]["A"], sides[weight]["B"])
        pair.check(found[weight])
        yield weight, pair
