"""What transformers computes in fp32 with the same tokens and patches. Needs the extra parity."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.errors import InputError, ModelLoadError

if TYPE_CHECKING:
    from jmm.trace import Trace


class Reference:
    """A Qwen2-VL or Qwen2.5-VL checkpoint in transformers, in fp32 on the CPU.

    Args:
        folder: Hugging Face checkpoint: config.json and the weights. Nothing is downloaded, and
            no code of the folder runs.

    Raises:
        InputError: torch or transformers is not installed.
        ModelLoadError: The folder holds no such checkpoint.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not (Path(folder) / "config.json").is_file():
            raise ModelLoadError(f"{folder}: there is no config.json; a checkpoint is needed")
        try:
            torch: Any = import_module("torch")
            transformers: Any = import_module("transformers")
        except ImportError as error:
            raise InputError(
                f"the reference needs {error.name}: pip install 'jmm[parity]'"
            ) from None
        self._torch = torch
        shown = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        try:
            net: Any = transformers.AutoModelForImageTextToText.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelLoadError(f"{folder}: transformers cannot load it: {error}") from None
        finally:
            if shown:
                transformers.utils.logging.enable_progress_bar()
        self._image_token = net.config.image_token_id
        self._net = net.model.eval()

    def trace(self, ours: Trace) -> Trace:
        """Runs the tokens and the patches of a trace.

        Args:
            ours: Of one picture.

        Returns:
            Trace: The same with the reference's hidden states, float32, and no token vectors.

        Raises:
            InputError: It has no picture of patches.
        """
        if ours.patches is None:
            raise InputError("the reference needs a picture's patches")
        torch = self._torch
        patches, grid_h, grid_w = ours.patches
        is_picture = np.array(ours.ids) < 0
        ids = np.where(is_picture, self._image_token, ours.ids)
        with torch.inference_mode():
            out = self._net(
                input_ids=torch.from_numpy(ids)[None],
                pixel_values=torch.tensor(patches),
                image_grid_thw=torch.tensor([[1, grid_h, grid_w]]),
                mm_token_type_ids=torch.from_numpy(is_picture.astype(np.int32))[None],
                use_cache=False,
            )
        return replace(ours, hidden=out.last_hidden_state[0].numpy(), vectors=None)
