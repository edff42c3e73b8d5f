"""jmm's names of devices as PyTorch has them."""

from __future__ import annotations


def of_torch(device: str) -> str:
    """PyTorch's name.

    Example:
        >>> of_torch("CUDA1"), of_torch("cpu")
        ('cuda:1', 'cpu')
    """
    name = device.lower()
    return f"cuda:{name.removeprefix('cuda') or 0}" if name.startswith("cuda") else name
