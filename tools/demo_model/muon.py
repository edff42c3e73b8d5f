"""Muon in single precision: torch's own rounds to bfloat16, which is slow without AMX.

Keller Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024: momentum,
made orthogonal by five Newton-Schulz steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalised(stack: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly, of [n, rows, columns]."""
    tall = stack.shape[1] > stack.shape[2]
    x = stack.transpose(1, 2) if tall else stack
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """For matrices of hidden layers; equal shapes are handled together."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(matrices, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            for shape, matrices in by_shape.items():
                updates = []
                for matrix in matrices:
                    state = self.state[matrix]
                    average = state.setdefault("average", torch.zeros_like(matrix))
                    average.lerp_(matrix.grad, 1 - group["momentum"])
                    updates.append(matrix.grad.lerp(average, group["momentum"]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for matrix, update in zip(
                    matrices, orthogonalised(torch.stack(updates)), strict=True
                ):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(update, alpha=scale)
