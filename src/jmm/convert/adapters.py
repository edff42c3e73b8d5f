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
from jmm.convert.json_file import Section, read, shown
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
# Other ways to start training take something off the weights.
_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
_LAYER = re.compile(r".*\.[^.]*\.(\d+)\.")
_NO_TASK = ""
ALONE = (_NO_TASK,)
_EMPTY = (
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
    "fan_in_fan_out",
    "target_parameters",
    "use_bdlora",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
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


def check_named(folder: Path, tasks: Sequence[str]) -> None:
    """Checks that no adapter lies in a model's folder without being asked for.

    Args:
        folder: The checkpoint with the weights.
        tasks: Those that config.json names.

    Raises:
        ModelLoadError: There is one beside config.json, which transformers adds to the weights, or
            a folder of adapters without a task.
    """
    if (folder / CONFIG).exists():
        raise ModelLoadError(
            f"{folder / CONFIG}: an adapter beside config.json is not supported; move it to a "
            "folder of its own, and pass this one as base (--base)"
        )
    if (folder / FOLDER / CONFIG).exists() and not tasks:
        raise ModelLoadError(
            f"{folder / FOLDER} holds adapters, and config.json has no task_names; pass "
            "use_adapters=False (--no-adapters) to leave them out"
        )


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
    for key in _EMPTY:
        if settings.values.get(key):
            raise settings.fail(key, "only plain LoRA is supported")
    settings.only("bias", "none")
    if settings.values.get("init_lora_weights") not in _STARTS:
        raise settings.fail("init_lora_weights", f"{shown(_STARTS)} are supported")
    rank = settings.whole("r")
    path = folder / WEIGHTS
    targets = _Targets.of(settings)
    sides: dict[str, dict[str, dict[str, Tensor]]] = {task: {} for task in tasks}
    for name, tensor in read_header(path).items():
        match = _NAME.fullmatch(name)
        weight = layout.canonical(f"{match['module']}.weight") if match else None
        if match is None or weight is None or weight not in found or not _is_adaptable(weight):
            raise tensor.fail("adapts no linear layer of the language model")
        if not targets.has(match["module"]):
            raise tensor.fail(f"is of a module that {settings.path} does not target")
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
    targets.check_complete(path)
    pairs = {task: dict(_pairs(path, task, sides[task], weights, found)) for task in tasks}
    for one in (pair for of_task in pairs.values() for pair in of_task.values()):
        if one.low.shape[0] != rank:
            raise one.low.fail(f"has rank {one.low.shape[0]}; r is {rank} in {settings.path}")
    return Adapters(settings.number("lora_alpha"), pairs)


@dataclass(frozen=True)
class _Targets:
    """Which modules PEFT adapts (its ``check_target_module_exists``); others' tensors it drops.

    Attributes:
        settings: adapter_config.json.
        layers: Indices of the layers that are adapted, None for all.
        unseen: Entries of a list of modules that no tensor has had yet.
    """

    settings: Section
    layers: list[int] | None
    unseen: set[str]

    @classmethod
    def of(cls, settings: Section) -> _Targets:
        layers: list[int] | None = None
        index = settings.values.get("layers_to_transform")
        if type(index) is int:
            layers = [index]
        elif index is not None:
            layers = settings.wholes("layers_to_transform") or None
        settings.only("layers_pattern", "layers")
        unseen: set[str] = set()
        for key in ("target_modules", "exclude_modules"):
            value = settings.values.get(key)
            if isinstance(value, str):
                try:
                    re.compile(value)
                except (re.error, RecursionError, OverflowError) as error:
                    raise settings.fail(key, f"it is no pattern: {error}") from None
            elif value is not None:
                names = settings.strings(key)
                unseen |= set(names) if key == "target_modules" else set()
        return cls(settings, layers, unseen)

    def has(self, module: str) -> bool:
        """Whether a module is adapted."""
        targets = self.settings.values.get("target_modules")
        if _matches(self.settings.values.get("exclude_modules"), module):
            return False
        if targets is not None and targets != "all-linear" and not _matches(targets, module):
            return False
        self.unseen.difference_update(_ends(module))
        if self.layers is None or (isinstance(targets, list) and module in targets):
            return True
        layer = _LAYER.match(module)
        return layer is not None and int(layer[1]) in self.layers

    def check_complete(self, path: Path) -> None:
        """Raises ModelLoadError if a listed module has no tensor."""
        if self.unseen:
            raise self.settings.fail("target_modules", f"{path} holds no {min(self.unseen)}")


def _matches(wanted: str | list[str] | None, module: str) -> bool:
    if isinstance(wanted, str):
        return re.fullmatch(wanted, module) is not None
    return wanted is not None and not _ends(module).isdisjoint(wanted)


def _ends(module: str) -> set[str]:
    """A module's name and those of its ends that begin after a dot."""
    parts = module.split(".")
    return {".".join(parts[i:]) for i in range(len(parts))}


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
