import os
from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

MAX_SEQUENCES: int
QUANTIZATION_VERSION: int
START_ERRORS: tuple[str, ...]

_Available = Callable[[], int | None] | None
_Path = str | os.PathLike[str]
_Float32 = npt.NDArray[np.float32]
_Patches = tuple[_Float32, int, int]
_Node = tuple[bool, str, str, str, int, int, int, int, float, list[tuple[str, str, int]]]
_Part = tuple[str, bool] | tuple[_Float32] | _Patches | tuple[_Float32, int, int, bool]

def build_info() -> dict[str, object]: ...
def devices(*, with_memory: bool = True) -> list[dict[str, object]]: ...
def set_native_log_level(level: int) -> None: ...
def read_gguf(
    path: _Path,
) -> tuple[dict[str, tuple[str, Any]], dict[str, tuple[str, tuple[int, ...], int, int]]]: ...
def file_types() -> dict[str, tuple[int, str]]: ...
def tensor_types() -> dict[str, tuple[int, int, int]]: ...
def choose_types(
    architecture: str,
    dimensions: tuple[int, int, int, int],
    file_type: int,
    tensors: list[tuple[str, int, tuple[int, ...]]],
) -> dict[str, str]: ...
def convert_rows(
    source: npt.NDArray[np.uint8],
    source_type: int,
    n_columns: int,
    target: npt.NDArray[np.uint8],
    target_type: int,
    n_target_columns: int,
    limit: float,
) -> float: ...
def measure(
    source: npt.NDArray[np.uint8], source_type: int
) -> tuple[int, int, int, float] | None: ...

@final
class Sequence:
    n_tokens: int
    n_prefix: int
    n_cells: int
    n_whole: int
    picture_span: tuple[int, int] | None
    pictures: list[_Patches]
    def token_ids(self) -> list[int]: ...

@disjoint_base
class Handles:
    n_threads: int
    patch_n_elem: int
    patch_size: int
    patch_n_merge: int
    n_embd_vision: int
    @property
    def is_open(self) -> bool: ...
    def check(self) -> None: ...
    def tower_bytes(self, shapes: list[tuple[int, int]]) -> int: ...
    def close(self) -> None: ...
    def retire(self) -> None: ...

@final
class Tower(Handles):
    def __init__(
        self,
        mmproj_path: _Path,
        *,
        n_threads: int,
        device: str | None = None,
        available: _Available = None,
    ) -> None: ...
    def encode_vision(self, pictures: list[_Patches]) -> list[_Float32]: ...

@final
class Engine(Handles):
    n_embd: int
    n_ctx_train: int
    n_vocab: int
    n_bytes: int
    n_rows: int
    has_tower: bool
    undivided: bool
    @property
    def max_sequences(self) -> int: ...
    @property
    def max_whole(self) -> int | None: ...
    def __init__(
        self,
        model_path: _Path,
        mmproj_path: _Path | None = None,
        adapter_paths: _Sequence[_Path] = (),
        *,
        n_threads: int,
        device: str | None = None,
        n_gpu_layers: int = -1,
        n_batch: int = 0,
        n_ubatch: int = 0,
        f16_kv: bool = False,
        use_mmap: bool = True,
        with_tower: bool = True,
        available: _Available = None,
    ) -> None: ...
    def context_bytes(self, n_tokens: int, n_sequences: int = 1) -> int: ...
    def tokenize(
        self,
        parts: _Sequence[_Part],
        *,
        add_special: bool = False,
        prefix: _Sequence[int] = (),
        in_order: bool = False,
    ) -> Sequence: ...
    def forward(
        self,
        sequences: list[Any],
        spans: list[tuple[int, int]],
        pooled: _Float32,
        hidden: _Float32 | None = None,
        *,
        tokens: list[_Float32] | None = None,
        projection: tuple[_Float32, _Float32] | None = None,
        normalize: bool = True,
        adapter: int = -1,
    ) -> list[bool]: ...
    def encode_vision(self, pictures: list[_Patches]) -> list[_Float32]: ...
    def record_nodes(self) -> None: ...
    def take_nodes(self) -> list[_Node]: ...
