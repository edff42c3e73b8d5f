"""No competitor: how fast the machine multiplies large matrices, in operations per second."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

N = 2048


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        self._calls = {"f32": _numpy_f32}
        self._source = f"numpy {np.__version__}"
        try:
            import torch
        except ImportError:
            return
        torch.set_num_threads(config["n_threads"])
        self._source = f"torch {torch.__version__}"
        self._calls = {"f32": _torch_call("f32")}
        flags = config["instruction_sets"]
        if "amx_bf16" in flags or "avx512_bf16" in flags:
            self._calls["bf16"] = _torch_call("bf16")
        if "amx_int8" in flags or "avx512_vnni" in flags:
            self._calls["int8"] = _torch_call("int8")

    def info(self) -> dict[str, Any]:
        return {"source": self._source, "matrix": N}

    def matmul(self, seed: int) -> dict[str, float]:
        return {name: 2 * N**3 / call(seed) for name, call in self._calls.items()}


def _numpy_f32(seed: int) -> float:
    rng = np.random.default_rng(seed)
    a, b = (rng.random((N, N), np.float32) for _ in range(2))
    start = time.perf_counter()
    a @ b
    return time.perf_counter() - start


def _torch_call(name: str) -> Any:
    import torch

    def call(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        if name == "int8":
            a, b = (torch.randint(-9, 9, (N, N), generator=generator).to(torch.int8) for _ in "ab")
            product = torch._int_mm
        else:
            dtype = torch.float32 if name == "f32" else torch.bfloat16
            a, b = (torch.rand((N, N), generator=generator).to(dtype) for _ in "ab")
            product = torch.mm
        start = time.perf_counter()
        product(a, b)
        return time.perf_counter() - start

    return call
