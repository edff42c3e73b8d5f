"""Muon in single precision: torch's own rounds to bfloat16, which is slow without AMX.

Keller Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024: momentum,
made orthogonal by five Newton-Schulz steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from demo_model import workers

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
OBLONG = 2


def orthogonalised(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, roughly: singular values between 0.7 and 1.2.

    Each step multiplies by a polynomial in x xT. All of them commute, so that for oblong
    matrices their product is gathered on the short side and applied once.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = COEFFICIENTS
    if x.shape[1] < OBLONG * x.shape[0]:
        for _ in range(STEPS):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    else:
        gram, product = x @ x.T, torch.eye(len(x))
        for _ in range(STEPS):
            factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
            factor.diagonal().add_(a)
            product = factor @ product
            gram = factor @ gram @ factor
        x = product @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """For matrices of hidden layers."""

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
    def step(self) -> None:  # type: ignore[override]
        """Updates the matrices."""
        rank, size = workers.rank_and_size()
        for group in self.param_groups:
            matrices, updates = group["params"], []
            for i, matrix in enumerate(matrices):
                average = self.state[matrix].setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = matrix.grad.lerp(average, group["momentum"])
                # Each process makes its share of the updates orthogonal.
                updates.append(
                    orthogonalised(update) if i % size == rank else torch.zeros_like(update)
                )
            for matrix, update in zip(matrices, workers.summed(updates), strict=True):
                scale = group["lr"] * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.sub_(update, alpha=scale)
