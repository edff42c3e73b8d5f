"""PyTorch: transformers' own model without the lm_head, scaled dot product attention."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from common import inputs, place
from common.shape import Weights, true_width
from common.timing import Timing

from support import reference

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        torch.set_num_threads(config["n_threads"])
        self._model = true_width(tuple(config["layers"]))
        self._place = place.of_torch(config["device"])
        self.net = _net(self._model, DTYPES[config["kind"]]).to(self._place)
        self._seconds_vision = 0.0
        tower = self.net.visual
        tower.register_forward_pre_hook(self._before_vision)
        tower.register_forward_hook(self._after_vision)

    def _before_vision(self, *_: object) -> None:
        self._wait()
        self._seconds_vision = -time.perf_counter()

    def _after_vision(self, *_: object) -> None:
        self._wait()
        self._seconds_vision += time.perf_counter()

    def _wait(self) -> None:
        if self._place != "cpu":
            torch.cuda.synchronize(self._place)

    def info(self) -> dict[str, Any]:
        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": self._place,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }

    @torch.inference_mode()
    def pictures(self, height: int, width: int, count: int, seed: int) -> Timing:
        images = inputs.pictures(height, width, count, seed)
        grids = torch.from_numpy(inputs.grid_thw(images))
        patches = torch.from_numpy(inputs.patches(images))
        ids = self._picture_ids(inputs.image_tokens(height, width)).expand(count, -1)
        is_picture = (ids == self.net.config.image_token_id).int()
        start = time.perf_counter()
        hidden = self.net(
            input_ids=ids.to(self._place),
            pixel_values=patches.to(self._place),
            image_grid_thw=grids.to(self._place),
            mm_token_type_ids=is_picture.to(self._place),
            use_cache=False,
        ).last_hidden_state
        vectors = hidden.float().mean(1).cpu().numpy()
        total = time.perf_counter() - start
        vision = self._seconds_vision
        return Timing(total=total, vision=vision, language=total - vision, vectors=vectors)

    def _picture_ids(self, n_tokens: int) -> torch.Tensor:
        vocab = self._model.vocab
        begin, end = (vocab.id(marker) for marker in inputs.MARKERS)
        return torch.tensor([[begin, *[vocab.id("<|image_pad|>")] * n_tokens, end]])

    @torch.inference_mode()
    def texts(self, n_texts: int, n_tokens: int, batch: int, seed: int) -> Timing:
        """``batch`` texts in a call."""
        ids_of = self._model.vocab.ids
        texts = inputs.texts(n_texts, n_tokens, seed)
        ids = torch.tensor([[ids_of[letter] for letter in text] for text in texts])
        start = time.perf_counter()
        rows = [
            self.net(input_ids=part.to(self._place), use_cache=False)
            .last_hidden_state.float()
            .mean(1)
            for part in ids.split(batch)
        ]
        vectors = torch.cat(rows).cpu().numpy()
        return Timing(total=time.perf_counter() - start, vectors=vectors)


def _net(model: Any, dtype: torch.dtype) -> Any:
    """The model of the files' float32 weights, filled one parameter at a time."""
    settings = reference.config(model)
    settings._attn_implementation = "sdpa"
    with torch.device("meta"):
        outline = transformers.Qwen2_5_VLModel(settings)
    net = outline.to(dtype).to_empty(device="cpu").eval()
    net.load_state_dict(
        {
            name.removeprefix("model."): torch.from_numpy(value).to(dtype)
            for name, value in Weights(model).items()
        },
        assign=True,
    )
    _make_buffers(net, settings)
    return net


def _make_buffers(net: Any, settings: Any) -> None:
    """The rotary tables, which are no parameters: taken from a model of one layer."""
    small = type(settings).from_dict(settings.to_dict())
    small.text_config.num_hidden_layers = small.vision_config.depth = 1
    small.text_config.vocab_size = 8
    source = dict(transformers.Qwen2_5_VLModel(small).named_buffers())
    for name, buffer in net.named_buffers():
        buffer.data = source[name].detach().clone()
