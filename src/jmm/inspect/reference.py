"""What transformers computes in fp32 with the same tokens and patches. Needs the extra parity."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.errors import InputError, ModelLoadError
from jmm.extras import needed

if TYPE_CHECKING:
    from jmm.trace import Trace

# Of config.json: the families whose processor cuts pictures into the patches that we have.
MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
_MOST_NAMED = 3


class Reference:
    """A Qwen2-VL, Qwen2.5-VL or Qwen3-VL checkpoint in transformers, in fp32 on the CPU.

    Args:
        folder: Hugging Face checkpoint: config.json and the weights. Nothing is downloaded, and
            no code of the folder runs.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ModelLoadError: The folder holds no such checkpoint, or not all of its weights.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        _check_type(Path(folder))
        self._torch: Any = needed("torch", "the reference")
        transformers: Any = needed("transformers", "the reference")
        try:
            with _quiet(transformers.utils.logging):
                net, found = transformers.AutoModelForImageTextToText.from_pretrained(
                    folder,
                    dtype=self._torch.float32,
                    local_files_only=True,
                    ignore_mismatched_sizes=True,  # told below, as what is missing is
                    output_loading_info=True,
                )
        except MemoryError:
            raise
        except Exception as error:  # of any package below it, each with a tree of its own
            raise ModelLoadError(f"{folder}: transformers cannot load it: {error}") from None
        _check_weights(folder, found)
        self._folder = folder
        self._image_token = net.config.image_token_id
        self._net: Any = net.model.eval()

    def trace(self, ours: Trace) -> Trace:
        """Runs the tokens and the patches of a trace.

        Args:
            ours: Of one picture.

        Returns:
            Trace: The same with the reference's hidden states, float32, and no token vectors.

        Raises:
            InputError: It has no picture of patches, or the checkpoint is of another model.
        """
        if ours.patches is None:
            raise InputError("the reference needs a picture's patches")
        torch = self._torch
        patches, grid_h, grid_w = ours.patches
        is_picture = np.array(ours.ids) < 0
        ids = np.where(is_picture, self._image_token, ours.ids)
        self._check_fits(ids, patches.shape[1])
        with torch.inference_mode():
            out = self._net(
                input_ids=torch.from_numpy(ids)[None],
                pixel_values=torch.tensor(patches),
                image_grid_thw=torch.tensor([[1, grid_h, grid_w]]),
                mm_token_type_ids=torch.from_numpy(is_picture.astype(np.int32))[None],
                use_cache=False,
            )
        return replace(ours, hidden=out.last_hidden_state[0].numpy(), vectors=None)

    def _check_fits(self, ids: np.ndarray[Any, Any], n_numbers: int) -> None:
        vision = self._net.config.vision_config
        per_patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        n_tokens = self._net.get_input_embeddings().num_embeddings
        if n_numbers != per_patch:
            raise InputError(
                f"{self._folder}: its patches have {per_patch} numbers, and those of the GGUF "
                f"model {n_numbers}; two files of one model are needed"
            )
        if ids.max() >= n_tokens:
            raise InputError(
                f"{self._folder}: its vocabulary has {n_tokens} tokens, and the GGUF model gave "
                f"token {ids.max()}; two files of one model are needed"
            )


def _check_type(folder: Path) -> None:
    path = folder / "config.json"
    if not os.path.isfile(path):
        raise ModelLoadError(f"{folder}: there is no config.json; a checkpoint is needed")
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: the file cannot be read: {error}") from None
    found = config.get("model_type") if isinstance(config, dict) else None
    if found not in MODEL_TYPES:
        raise ModelLoadError(f"{path}: model_type is {found!r}; known are {', '.join(MODEL_TYPES)}")


def _check_weights(folder: str | os.PathLike[str], found: dict[str, Any]) -> None:
    """Refuses what transformers has filled with random numbers."""
    missing = {name for name in found["missing_keys"] if not name.startswith("lm_head.")}
    others = {name for name, *_ in found["mismatched_keys"]}
    for names, why in ((missing, "are missing"), (others, "have other shapes than config.json")):
        if names:
            shown = ", ".join(sorted(names)[:_MOST_NAMED])
            raise ModelLoadError(
                f"{folder}: {len(names)} weights {why}: {shown}"
                f"{', ...' if len(names) > _MOST_NAMED else ''}; copy or download it again"
            )


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Keeps transformers' progress bar and reports back: errors tell what matters."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
