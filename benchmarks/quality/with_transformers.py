"""transformers in float32 as a retriever: the reference that other rows are compared with.

One item at a time, so without padding. Prompts and pooled span are the profile's, as data; tokens,
pictures, hidden states and means are transformers' and torch's. A marker of a special token in a
text counts as one here, as in the models' own code; the Embedder takes it as text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from jmm import MultiVector
from jmm.profiles import PICTURE, PROFILES, TEXT, Profile, Special
from quality.task import NoModel, NoProjector, Vectors

PROJECTOR = "multi_vector_projector"
_PROCESSOR_SETTINGS = ("size", "min_pixels", "max_pixels", "image_mean", "image_std")
_VISION = ("qwen2_vl", "qwen2_5_vl")


class TransformersRetriever:
    """A model of a Hugging Face folder.

    Args:
        folder: config.json, weights as safetensors, the tokenizer; for multi-vectors a linear
            layer ``multi_vector_projector`` among the weights.
        profile: Name of the family, as for `Embedder`; None takes the plain one of the kind.
        n_threads: Threads that compute.
        min_pixels: Least area of a picture; None takes preprocessor_config.json's, or the default.
        max_pixels: Greatest area.

    Raises:
        NoModel: The folder holds none, or not all of its weights.
    """

    def __init__(
        self,
        folder: Path,
        *,
        profile: str | None = None,
        n_threads: int,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> None:
        torch.set_num_threads(n_threads)
        transformers.logging.disable_progress_bar()
        transformers.logging.set_verbosity_error()
        if not (folder / "config.json").is_file():
            raise NoModel(f"{folder}: no config.json")
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        self._has_vision = kind in _VISION
        self._profile = PROFILES[profile or ("qwen2.5-vl" if self._has_vision else "text")]
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.net = _load(folder)
        self._projector = _projector(folder)
        if self._has_vision:
            self._processor = _processor(folder, self._profile, min_pixels, max_pixels)

    def queries(self, texts: list[str], *, multi_vector: bool) -> Vectors:
        prompt = next(iter(self._profile.query.values()))
        return self._embed([self._text(prompt, text) for text in texts], multi_vector)

    def documents(self, items: list[Any], *, multi_vector: bool) -> Vectors:
        prompt = next(iter(self._profile.document.values()))
        embedded = [
            self._text(prompt, item) if isinstance(item, str) else self._picture(item)
            for item in items
        ]
        return self._embed(embedded, multi_vector)

    def info(self) -> dict[str, Any]:
        info = {
            "bytes": sum(p.numel() * p.element_size() for p in self.net.parameters()),
            "profile": self._profile.name,
        }
        if self._has_vision:
            info |= dict(self._processor.size)
        return info

    def close(self) -> None:
        del self.net

    def _text(self, prompt: Any, text: str) -> tuple[torch.Tensor, slice]:
        """Hidden states [n, hidden] and the rows that are pooled."""
        written = "".join(text if piece == TEXT else _written(piece) for piece in prompt)
        ids = self._tokenizer(
            written, add_special_tokens=self._profile.add_special, return_tensors="pt"
        ).input_ids
        hidden = self._hidden(input_ids=ids)
        return hidden, slice(*self._profile.pooled_rows(len(hidden)))

    def _picture(self, picture: Any) -> tuple[torch.Tensor, slice]:
        inputs = self._processor(images=[picture.convert("RGB")], return_tensors="pt")
        settings = self.net.config
        names = (settings.vision_start_token_id, settings.image_token_id)
        start, pad = self._tokenizer.convert_ids_to_tokens(list(names))
        _, end = self._profile.markers
        n_pads = int(inputs["image_grid_thw"].prod()) // self._processor.merge_size**2
        between = start + pad * n_pads + end
        written = "".join(
            between if piece == PICTURE else _written(piece) for piece in self._profile.image or ()
        )
        ids = self._tokenizer(written, add_special_tokens=False, return_tensors="pt").input_ids
        is_pad = ids == settings.image_token_id
        hidden = self._hidden(input_ids=ids, mm_token_type_ids=is_pad.int(), **inputs)
        first = int(is_pad[0].nonzero()[0])
        return hidden, slice(*self._profile.pooled_rows(len(hidden), (first, first + n_pads)))

    @torch.inference_mode()
    def _hidden(self, **inputs: Any) -> torch.Tensor:
        return self.net(**inputs, use_cache=False).last_hidden_state[0]

    @torch.inference_mode()
    def _embed(self, items: list[tuple[torch.Tensor, slice]], multi_vector: bool) -> Vectors:
        if not multi_vector:
            means = torch.stack([hidden[rows].mean(0) for hidden, rows in items])
            return torch.nn.functional.normalize(means).numpy()
        if self._projector is None:
            raise NoProjector(f"no {PROJECTOR} among the weights")
        normalize = torch.nn.functional.normalize
        return MultiVector.from_list(
            [normalize(self._projector(hidden)).numpy() for hidden, _ in items]
        )


def _load(folder: Path) -> Any:
    net, loading = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    if loading["missing_keys"]:
        raise NoModel(f"{folder}: no weights for {', '.join(sorted(loading['missing_keys']))}")
    return net.eval()


def _written(piece: Special | str) -> str:
    return piece.token if isinstance(piece, Special) else piece


def _projector(folder: Path) -> torch.nn.Linear | None:
    """The layer of that name, whatever file and prefix it lies under."""
    from safetensors import safe_open

    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                if f".{name}".rpartition(".")[0].endswith(f".{PROJECTOR}"):
                    found[name.rpartition(".")[2]] = file.get_tensor(name).float()
    if not found:
        return None
    n_out, n_in = found["weight"].shape
    layer = torch.nn.Linear(n_in, n_out, bias="bias" in found)
    layer.load_state_dict(found)
    return layer


def _processor(
    folder: Path, profile: Profile, min_pixels: int | None, max_pixels: int | None
) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    path = folder / "preprocessor_config.json"
    written = json.loads(path.read_text()) if path.is_file() else {}
    settings = {name: written[name] for name in _PROCESSOR_SETTINGS if name in written}
    # As in the Embedder: an argument wins over the profile, that over the file.
    given = {
        "min_pixels": min_pixels or profile.min_pixels,
        "max_pixels": max_pixels or profile.max_pixels,
    }
    settings |= {name: value for name, value in given.items() if value}
    return Qwen2VLImageProcessorPil(**settings)
