"""The LoRA adapters of a checkpoint: one file that holds the pairs of every task, or of one alone.

Source: jina-embeddings-v4's ``adapters/`` folder. Its tensors are named
``base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.retrieval.weight``, and
``base_model.model.multi_vector_projector.lora_A.retrieval.weight`` for the projector; A is
``[rank, inputs]``, B ``[outputs, rank]``, and a pair adds ``lora_alpha / rank * B @ A``. An
adapter that is a checkpoint of its own, as PEFT's ``save_pretrained`` writes it and ColQwen's are,
has no task in its names, and its two files lie at the top.
"""

from __future__ import annotations

import os
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

_NAME = re.compile(
    r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(?:\.(?P<task>.+))?\.weight"
)
_NO_TASK = ""
ALONE = (_NO_TASK,)
_PLAIN = (
    "use_rslora",
    "use_dora",
    "use_qalora",
    "lora_bias",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layer_replication",
    "trainable_token_indices",
    "alora_invocation_tokens",
)


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


def base_of(folder: Path) -> str | None:
    """The name of the model that an adapter alone belongs to, "" for an unknown one.

    Returns:
        None for a folder that holds more than an adapter.

    Raises:
        ModelLoadError: The adapter's settings cannot be read.
    """
    if os.path.exists(folder / "config.json") or not os.path.exists(folder / CONFIG):
        return None
    return str(read(folder / CONFIG).get("base_model_name_or_path") or "")


def read_adapters(folder: Path, tasks: Sequence[str], found: Mapping[str, Tensor]) -> Adapters:
    """Reads the headers of the adapters and checks them against the checkpoint.

    Args:
        folder: Where they lie.
        tasks: Those that config.json names; `ALONE` for an adapter without a task.
        found: The checkpoint's tensors by canonical name.

    Raises:
        ModelLoadError: A file or a pair is missing, unknown, or does not fit its weight.
    """
    settings = Section(folder / CONFIG, read(folder / CONFIG))
    if settings.values.get("peft_type", "LORA") != "LORA":
        raise settings.fail("peft_type", "'LORA' is supported")
    for key in _PLAIN:
        if settings.values.get(key):
            raise settings.fail(key, "only plain LoRA is supported")
    path = folder / WEIGHTS
    sides: dict[str, dict[str, dict[str, Tensor]]] = {task: {} for task in tasks}
    for name, tensor in read_header(path).items():
        match = _NAME.fullmatch(name)
        weight = layout.canonical(f"{match['module']}.weight") if match else None
        if match is None or weight is None or weight not in found or not _is_adaptable(weight):
            raise tensor.fail("adapts no linear layer of the language model")
        task = match["task"] or _NO_TASK
        if task not in sides:
            has = (
                "the adapter has none" if tasks == ALONE else f"config.json has {', '.join(tasks)}"
            )
            raise tensor.fail(f"is of task {task or 'none'}; {has}")
        sides[task].setdefault(weight, {})[match["side"]] = tensor
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
                of = f" of task {task}" if task else ""
                raise ModelLoadError(f"{path}: lora_{side}{of} for {weight} is missing")
        pair = Pair(sides[weight]["A"], sides[weight]["B"])
        pair.check(found[weight])
        yield weight, pair
