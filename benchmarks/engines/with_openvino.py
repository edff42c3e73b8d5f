"""OpenVINO: plain torch modules of the same values, converted and compiled for one size at a time.

int8 quantizes weights and activations by nncf, calibrated on one picture: for its time alone.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino
import torch
from common import inputs
from common.shape import Weights, true_width
from common.timing import Timing
from torch import nn

from engines import plain_torch

KINDS = ("f32", "bf16", "int8")


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        if config["kind"] not in KINDS:
            raise ValueError(f"openvino computes in one of {', '.join(KINDS)}")
        self._kind = config["kind"]
        self._model = true_width(tuple(config["layers"]))
        self._core = openvino.Core()
        self._settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": config["n_threads"],
            "INFERENCE_PRECISION_HINT": "bf16" if self._kind == "bf16" else "f32",
        }
        self._size: tuple[int, int] | None = None
        self._vision: Any = None
        self._language: Any = None

    def info(self) -> dict[str, Any]:
        return {
            "openvino": openvino.__version__,
            "torch": torch.__version__,
            "capabilities": self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
        }

    def _compile(self, height: int, width: int) -> None:
        self._vision = self._language = None
        patches = torch.from_numpy(inputs.patches(inputs.pictures(height, width, 1, 0)))
        vision = _load(plain_torch.Vision(self._model, height, width), self._model, "visual.")
        with torch.inference_mode():
            rows = vision(patches)
        self._vision = self._compiled(vision, patches)
        del vision
        language = plain_torch.Language(self._model, height, width, _markers(self._model))
        self._language = self._compiled(_load(language, self._model, "language_model."), rows)
        self._size = height, width

    def _compiled(self, module: nn.Module, sample: torch.Tensor) -> Any:
        converted = openvino.convert_model(
            module, example_input=sample, input=[tuple(sample.shape)]
        )
        if self._kind == "int8":
            import nncf

            converted = nncf.quantize(
                converted,
                nncf.Dataset([sample.numpy()]),
                subset_size=1,
                model_type=nncf.ModelType.TRANSFORMER,
            )
        return self._core.compile_model(converted, "CPU", self._settings)

    def pictures(self, height: int, width: int, count: int, seed: int) -> Timing:
        """One picture after the other: the size of the graph is fixed."""
        if self._size != (height, width):
            self._compile(height, width)
        images = inputs.pictures(height, width, count, seed)
        vectors = np.empty((count, self._model.hidden), np.float32)
        vision = language = 0.0
        for image, row in zip(images, vectors, strict=True):
            patches = inputs.patches([image])
            start = time.perf_counter()
            rows = self._vision(patches)[0]
            middle = time.perf_counter()
            row[:] = self._language(rows)[0]
            end = time.perf_counter()
            vision += middle - start
            language += end - middle
        return Timing(total=vision + language, vision=vision, language=language, vectors=vectors)


def _load(module: nn.Module, model: Any, part: str) -> nn.Module:
    """Fills a module with its share of the weights."""
    wanted, prefix = module.state_dict(), f"model.{part}"
    values = Weights(model)
    state = {}
    for name, shape in values.shapes():
        key = name.removeprefix(prefix)
        if key in wanted:
            value = torch.from_numpy(values.value(name, shape))
            state[key] = value.reshape(wanted[key].shape)
    module.load_state_dict(state, assign=True)
    return module.eval()


def _markers(model: Any) -> torch.Tensor:
    """The two rows of the embedding matrix, [2, hidden]."""
    name, values = "model.language_model.embed_tokens.weight", Weights(model)
    matrix = values.value(name, dict(values.shapes())[name])
    return torch.from_numpy(matrix[[model.vocab.id(marker) for marker in inputs.MARKERS]])
