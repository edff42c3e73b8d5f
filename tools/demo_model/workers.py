"""Several processes that train one model: gradients are averaged once per step.

On a busy machine this beats several threads in one process, which wait for each other at
every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


def run(n: int, rendezvous: Path, work: Callable[[int], None]) -> None:
    """Runs ``work(rank)`` in ``n`` processes: this one, rank 0, and ``n - 1`` children.

    Args:
        n: Processes.
        rendezvous: A file that they meet at.
        work: What each process does; nothing of torch may have run before.
    """
    rendezvous.unlink(missing_ok=True)
    context = torch.multiprocessing.get_context("fork")
    children = [
        context.Process(target=_join, args=(rank, n, rendezvous, work)) for rank in range(1, n)
    ]
    for child in children:
        child.start()
    _join(0, n, rendezvous, work)
    for child in children:
        child.join()


def _join(rank: int, n: int, rendezvous: Path, work: Callable[[int], None]) -> None:
    torch.set_num_threads(1)
    # A paused group of processes is no failure.
    patience = timedelta(days=2)
    dist.init_process_group(
        "gloo", f"file://{rendezvous.resolve()}", timeout=patience, rank=rank, world_size=n
    )
    work(rank)
    dist.destroy_process_group()


def rank_and_size() -> tuple[int, int]:
    """This process's number and how many there are; (0, 1) outside of `run`."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def summed(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sums tensors over all processes, in one message."""
    if not dist.is_initialized():
        return list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
