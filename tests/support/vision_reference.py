"""What transformers computes with the models of `support.vision_family`, processors included."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image

from support.family_reference import FamilyReference, in_double
from support.vision_family import MEAN, PATCH, STD, VisionFamily


@dataclass(frozen=True)
class Inputs:
    """What a processor made of pictures and the text around them.

    Attributes:
        ids: int64 [n], picture rows included.
        tiles: float32 [n_tiles, side, side, 3].
        is_picture: bool [n].
        further: Of the towers that take patches, what the processor gave for them.
    """

    ids: NDArray[np.int64]
    tiles: NDArray[np.float32]
    is_picture: NDArray[np.bool_]
    further: dict[str, torch.Tensor] = field(default_factory=dict)


def _joined(patches: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """The picture that was cut into patches, [1, 3, height, width]."""
    patches = patches[: (positions[:, 0] >= 0).sum()]
    width, height = positions.max(axis=0) + 1
    side = round((patches.shape[1] // 3) ** 0.5)
    cut = patches.reshape(height, width, side, side, 3).transpose(4, 0, 2, 1, 3)
    return cut.reshape(1, 3, height * side, width * side)


class VisionReference(FamilyReference):
    """One model in double precision, and its processor."""

    family: VisionFamily

    def process(self, picture: NDArray[np.uint8], text: str | None = None) -> Inputs:
        """Runs transformers' processor.

        Args:
            picture: uint8 [h, w, 3].
            text: Text around the processor's own placeholder; None for that alone.
        """
        processor = self._processor()
        placeholder = {"gemma3": "<start_of_image>"}.get(self.family.name, self.family.image_token)
        text = (text or "{}").format(placeholder)
        found = processor(images=[Image.fromarray(picture)], text=[text], return_tensors="np")
        tokens = processor.tokenizer.convert_ids_to_tokens(found["input_ids"][0].tolist())
        ids = np.array([self.family.words().ids[token] for token in tokens], np.int64)
        further = {}
        pixels = np.asarray(found["pixel_values"], np.float32)
        if "image_position_ids" in found:
            positions = np.asarray(found["image_position_ids"])
            further = {
                "pixel_values": torch.from_numpy(pixels).double(),
                "image_position_ids": torch.from_numpy(positions),
            }
            pixels = _joined(pixels[0], positions[0])
        pixels = pixels.reshape(-1, *pixels.shape[-3:]).transpose(0, 2, 3, 1)
        is_picture = ids == self.family.words().ids[self.family.image_token]
        return Inputs(ids, np.ascontiguousarray(pixels), is_picture, further)

    def _processor(self) -> Any:
        module, name = self.family.processor
        module = importlib.import_module(
            f"transformers.models.{module}.image_processing_pil_{module}"
        )
        images = getattr(module, name)(
            **({"image_mean": MEAN, "image_std": STD} | dict(self.family.processor_arguments))
        )
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=self.family.words().make_tokenizer(True),
            pad_token="<pad>" if "<pad>" in self.family.words().ids else None,
            extra_special_tokens={
                "boi_token": self.family.begin_token,
                "eoi_token": self.family.end_token,
                "image_token": self.family.image_token,
                "start_image_token": "<img>",
                "end_image_token": "</img>",
                "context_image_token": "<IMG_CONTEXT>",
                "video_token": "<video>",
            },
        )
        n = (self.family.tile // PATCH) ** 2
        if self.family.name == "gemma3":
            return transformers.Gemma3Processor(images, tokenizer, image_seq_length=n // 4)
        if self.family.name == "smolvlm":
            return transformers.Idefics3Processor(images, tokenizer, image_seq_len=n // 4)
        if self.family.name == "llava":
            return transformers.LlavaProcessor(
                images,
                tokenizer,
                patch_size=PATCH,
                vision_feature_select_strategy="default",
                image_token=self.family.image_token,
                num_additional_image_tokens=1,
            )
        # The check of the video processor's class, which is not there, needs torchvision.
        with mock.patch.object(
            transformers.ProcessorMixin, "check_argument_for_proper_class", return_value=None
        ):
            if self.family.name == "embeddinggemma2_vision":
                return transformers.EmbeddingGemma2Processor(None, images, tokenizer, None)
            return transformers.InternVLProcessor(images, tokenizer, None, image_seq_length=n // 4)

    def _pixels(self, inputs: Inputs) -> torch.Tensor:
        return torch.from_numpy(inputs.tiles.transpose(0, 3, 1, 2).copy()).double()

    @torch.inference_mode()
    def vit(self, inputs: Inputs) -> NDArray[np.float64]:
        """Rows of all tiles, [n_tiles * rows, dim]."""
        pixels = self._pixels(inputs)
        with in_double():
            if inputs.further:
                found = self.net.get_image_features(**inputs.further)
            elif self.family.name == "smolvlm":
                found = self.net.get_image_features(pixels[None])
            else:
                found = self.net.get_image_features(pixel_values=pixels)
        rows = found.pooler_output if hasattr(found, "pooler_output") else found
        if isinstance(rows, list | tuple):
            rows = torch.cat(list(rows))
        return rows.reshape(-1, rows.shape[-1]).double().numpy()

    @torch.inference_mode()
    def picture_hidden(self, inputs: Inputs) -> NDArray[np.float64]:
        """Last hidden state, [n, dim]."""
        pixels = self._pixels(inputs)
        further: dict[str, Any] = {"pixel_values": pixels, **inputs.further}
        if self.family.name == "smolvlm":
            further["pixel_values"] = pixels[None]
        if self.family.name == "gemma3":
            further["token_type_ids"] = torch.from_numpy(inputs.is_picture.astype(np.int64))[None]
        with in_double():
            found = self.net(input_ids=torch.from_numpy(inputs.ids)[None], **further)
        return found.last_hidden_state[0].double().numpy()
