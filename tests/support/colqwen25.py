"""ColQwen2.5 as colpali-engine runs it. Needs torch, transformers and that package alone.

Example:
    >>> model = ColQwen25(tiny.MODELS["qwen25_small"], tiny.weights(tiny.MODELS["qwen25_small"]))
    >>> model.queries(["a red square"])[0].shape
    (16, 128)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as pil

from support import oracles, reference
from support.tiny import TinyModel, Weights

_PACKAGE = "colpali_engine.models.qwen2_5.colqwen2_5"
oracles.without_init("colpali_engine.models", "colpali_engine.models.qwen2_5", _PACKAGE)
ColQwen2_5 = importlib.import_module(f"{_PACKAGE}.modeling_colqwen2_5").ColQwen2_5
# Its processor imports a function, which the module with PIL has too, from the one that needs
# torchvision.
with mock.patch.dict(sys.modules, {"transformers.models.qwen2_vl.image_processing_qwen2_vl": pil}):
    ColQwen2_5_Processor = importlib.import_module(
        f"{_PACKAGE}.processing_colqwen2_5"
    ).ColQwen2_5_Processor

LIMITS = {"shortest_edge": 3136, "longest_edge": 602_112}


class _Processor(ColQwen2_5_Processor):  # type: ignore[misc,valid-type]
    """Without a processor of videos, which needs torchvision."""

    def check_argument_for_proper_class(self, name: str, argument: Any) -> Any:
        if argument is None:
            return None
        return super().check_argument_for_proper_class(name, argument)


class ColQwen25:
    """One tiny model and its processor.

    Args:
        model: Dimensions.
        weights: The parameters of Qwen2.5-VL; the output matrix is left out.
        projector: Weight ``[dim, hidden]`` and bias; None to draw one of the class's 128.
    """

    def __init__(
        self,
        model: TinyModel,
        weights: Weights,
        projector: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
    ) -> None:
        settings = reference.config(model)
        settings._attn_implementation = "eager"
        torch.manual_seed(model.seed)
        self.net = ColQwen2_5(settings).eval()
        if projector is not None:
            self.net.custom_text_proj = torch.nn.Linear(*projector[0].shape[::-1])
        linear = self.net.custom_text_proj.state_dict()
        if projector is not None:
            linear = dict(zip(("weight", "bias"), map(torch.from_numpy, projector), strict=True))
        state = {
            name.removeprefix("model."): torch.from_numpy(value.copy())
            for name, value in weights.items()
            if name.startswith("model.")
        }
        state |= {f"custom_text_proj.{name}": value for name, value in linear.items()}
        self.net.load_state_dict(state)
        self.processor = _Processor(
            pil.Qwen2VLImageProcessorPil(size=LIMITS),
            transformers.PreTrainedTokenizerFast(
                tokenizer_object=reference.tokenizer(model, True), pad_token="<|endoftext|>"
            ),
        )

    @torch.inference_mode()
    def rows(self, inputs: Any) -> list[NDArray[np.float32]]:
        """Token vectors of what the processor returned, without padding, ``[n, dim]`` each."""
        found = self.net(**inputs)
        masks = inputs["attention_mask"].bool()
        return [rows[mask].numpy() for rows, mask in zip(found, masks, strict=True)]

    def queries(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Token vectors of queries, in one batch."""
        return self.rows(self.processor.process_queries(list(texts)))

    def documents(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Token vectors of texts, in one batch."""
        return self.rows(self.processor.process_texts(list(texts)))

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        """Token vectors of pictures, in one batch."""
        return self.rows(self.processor.process_images(list(map(Image.fromarray, pictures))))
