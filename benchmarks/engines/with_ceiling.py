"""No competitor: how fast the machine multiplies large matrices, in operations per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import place

try:
    import torch
except ImportError:
    torch = None

N = 2048
N_ON_GPU = 8192
# torch is slow at these types where the processor has no instructions for them.
FAST_TYPES = {
    "bf16": ("amx_bf16", "avx512_bf16"),
    "int8": ("amx_int8", "avx512_vnni", "avx_vnni"),
}


class Engine:
    def __init__(self, config: dict[str, Any]) -> None:
        self._products: dict[str, list[Callable[[int], float]]] = {"f32": [_by_numpy]}
        self._n = N
        if config["device"] != "cpu":
            self._n = N_ON_GPU
            where = place.of_torch(config["device"])
            on_gpu = torch is not None and torch.cuda.is_available()
            self._products = {"bf16": [_on_gpu(where)]} if on_gpu else {}
            return
        if torch is None:
            return
        torch.set_num_threads(config["n_threads"])
        self._products["f32"].append(_by_torch("f32"))
        for name, sets in FAST_TYPES.items():
            if not set(sets).isdisjoint(config["instruction_sets"]):
                self._products[name] = [_by_torch(name)]

    def info(self) -> dict[str, Any]:
        return {"numpy": np.__version__, "torch": getattr(torch, "__version__", None), "n": self._n}

    def matmul(self, seed: int) -> dict[str, float]:
        """Per type the better of the libraries' speeds."""
        return {
            name: 2 * self._n**3 / min(product(seed) for product in products)
            for name, products in self._products.items()
        }


def _by_numpy(seed: int) -> float:
    rng = np.random.default_rng(seed)
    a, b = (rng.random((N, N), np.float32) for _ in "ab")
    start = time.perf_counter()
    a @ b
    return time.perf_counter() - start


def _on_gpu(where: str) -> Callable[[int], float]:
    def product(seed: int) -> float:
        generator = torch.Generator(where).manual_seed(seed)
        shape = (N_ON_GPU, N_ON_GPU)
        a, b = (
            torch.rand(shape, generator=generator, device=where, dtype=torch.bfloat16) for _ in "ab"
        )
        torch.mm(a, b)
        torch.cuda.synchronize(where)
        start = time.perf_counter()
        torch.mm(a, b)
        torch.cuda.synchronize(where)
        return time.perf_counter() - start

    return product


def _by_torch(name: str) -> Callable[[int], float]:
    def product(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        if name == "int8":
            a, b = (
                torch.randint(-99, 99, (N, N), generator=generator, dtype=torch.int8) for _ in "ab"
            )
            multiply = torch._int_mm
        else:
            dtype = torch.float32 if name == "f32" else torch.bfloat16
            a, b = (torch.rand((N, N), generator=generator).to(dtype) for _ in "ab")
            multiply = torch.mm
        start = time.perf_counter()
        multiply(a, b)
        return time.perf_counter() - start

    return product
