import os
from collections.abc import Sequence as _Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

MAX_SEQUENCES: int
MAX_GRID: int

_Path = str | os.PathLike[str]
_Part = tuple[str, bool] | tuple[npt.NDArray[np.float32], int, int]

def build_info() -> dict[str, object]: ...
def devices() -> list[dict[str, object]]: ...
def set_native_log_level(level: int) -> None: ...
def read_gguf(
    path: _Path,
) -> tuple[dict[str, tuple[str, Any]], dict[str, tuple[str, tuple[int, ...], int]]]: ...

@final
class Sequence:
    n_tokens: int
    picture_span: tuple[int, int] | None
    def token_ids(self) -> list[int]: ...

@final
class Engine:
    n_threads: int
    n_embd: int
    n_ctx_train: int
    n_vocab: int
    patch_n_elem: int
    patch_n_merge: int
    n_bytes: int
    def __init__(
        self,
        model_path: _Path,
        mmproj_path: _Path | None = None,
        *,
        n_threads: int,
        n_gpu_layers: int = -1,
        n_batch: int = 0,
        n_ubatch: int = 0,
        f16_kv: bool = False,
    ) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def check(self) -> None: ...
    def close(self) -> None: ...
    def retire(self) -> None: ...
    def tokenize(self, parts: _Sequence[_Part], *, add_special: bool = False) -> Sequence: ...
    def forward(
        self,
        sequences: list[Sequence],
        spans: list[tuple[int, int]],
        pooled: npt.NDArray[np.float32],
        hidden: npt.NDArray[np.float32] | None = None,
    ) -> list[bool]: ...
    def encode_picture(self, sequence: Sequence) -> npt.NDArray[np.float32]: ...
