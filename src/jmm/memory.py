"""How much memory there is, and how much a model takes at most."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jmm import cgroup
from jmm.errors import OutOfMemoryError
from jmm.gguf_header import MERGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

PROC = Path("/proc")

# Around a picture.
_PROMPT_TOKENS = 64

# Of a vocabulary, a token and its merge: 80 MB were measured for Qwen2's 151,936.
_TOKEN_BYTES = 530

# A forecast of more cells follows a line: to make it, llama.cpp lists the cells themselves.
_MOST_CELLS = 32_768


class Engine(Protocol):
    """What is asked for its sizes: `_core.Engine`."""

    n_vocab: int
    patch_n_elem: int
    patch_size: int

    def context_bytes(self, n_tokens: int, n_sequences: int = 1) -> int:
        """Bytes of a batch in the language model."""

    def tower_bytes(self, shapes: list[tuple[int, int]]) -> int:
        """Bytes of pictures in the tower."""


def available(proc: Path = PROC, root: Path = cgroup.ROOT) -> int | None:
    """Tells how many bytes this process may still take.

    The least of what the machine has left (swap included), what its control groups allow beside
    what their processes use (files in the page cache not counted), and what is left of its
    address space (RLIMIT_AS).

    Returns:
        Bytes; None where none of these is known, as on systems other than Linux.

    Example:
        >>> left = available()
        >>> left is None or left >= 0
        True
    """
    found = [
        left
        for left in (_machine(proc), _groups(proc, root), _address_space(proc))
        if left is not None
    ]
    return max(0, min(found)) if found else None


def peaks(
    engine: Engine, weights: int, *, n_batch: int, n_ctx: int, max_pixels: int | None
) -> dict[str, int]:
    """Tells what an engine takes at most, in bytes of resident memory.

    The interpreter, its packages and what the caller holds come on top, and with many pictures
    those that are read ahead (64 MB) and wait for their batch (40 MB).

    Args:
        engine: The engine.
        weights: Bytes of its weights.
        n_batch: Cells of a full batch of short texts.
        n_ctx: Most tokens of an item.
        max_pixels: Greatest area of a picture that becomes patches; None without such pictures.

    Returns:
        ``loaded``; and what it takes with a full batch of ``texts``, with the ``longest_text``,
        and with the largest ``picture``. Buffers stay, so that a peak is what comes later, too.
    """
    weights += _TOKEN_BYTES * engine.n_vocab
    found = {
        "loaded": weights,
        "texts": weights + _context_bytes(engine, n_batch),
        "longest_text": weights + _context_bytes(engine, n_ctx),
    }
    if max_pixels is not None:
        cell = engine.patch_size * MERGE_SIZE
        side = max(1, math.isqrt(max_pixels) // cell)
        shape = side, max(1, max_pixels // cell**2 // side)
        n_tokens = shape[0] * shape[1]
        grid = shape[0] * MERGE_SIZE, shape[1] * MERGE_SIZE
        patches = 4 * grid[0] * grid[1] * engine.patch_n_elem
        found["picture"] = (
            weights
            + patches
            + engine.tower_bytes([grid])
            + _context_bytes(engine, min(n_tokens + _PROMPT_TOKENS, n_ctx))
        )
    return found


def _context_bytes(engine: Engine, n_tokens: int) -> int:
    if n_tokens <= _MOST_CELLS:
        return engine.context_bytes(n_tokens)
    most = engine.context_bytes(_MOST_CELLS)
    per_cell = (most - engine.context_bytes(_MOST_CELLS // 2)) / (_MOST_CELLS // 2)
    return most + math.ceil(per_cell * (n_tokens - _MOST_CELLS))


def check_settings(found: Mapping[str, int], given: Mapping[str, object], free: int | None) -> None:
    """Refuses settings with which the largest item that they allow cannot fit.

    Args:
        found: From `peaks`, after loading.
        given: By the name of a peak, the setting that allows it, as the caller gave it.
        free: From `available`.

    Raises:
        OutOfMemoryError: A peak is more than there is.
    """
    for name, setting in given.items():
        more = found.get(name, 0) - found["loaded"]
        if free is not None and more > free:
            raise OutOfMemoryError(
                f"{setting} cannot fit: the largest item that it allows takes {more / 1e6:,.0f} "
                f"MB beside the model, and {free / 1e6:,.0f} MB are free; lower it"
            )


def check_weights(n_bytes: int, free: int | None) -> None:
    """Refuses files that are read into memory and cannot fit there.

    Args:
        n_bytes: Of the files.
        free: From `available`.

    Raises:
        OutOfMemoryError: They are more than there is.

    Example:
        >>> check_weights(4_000_000_000, free=None)
    """
    if free is not None and n_bytes > free:
        raise OutOfMemoryError(
            f"the files to read take {n_bytes / 1e6:,.0f} MB of memory and {free / 1e6:,.0f} MB "
            "are free; use a smaller file type (jmm quantize)"
        )


def _machine(proc: Path) -> int | None:
    fields = cgroup.fields(cgroup.read(proc / "meminfo"), ":")
    if "MemAvailable" not in fields:
        return None
    return (fields["MemAvailable"] + fields.get("SwapFree", 0)) * 1024


def _groups(proc: Path, root: Path) -> int | None:
    groups = cgroup.groups("memory", proc / "self" / "cgroup", root)
    found = [_group(group, version) for group, version in groups]
    return min((left for left in found if left is not None), default=None)


def _group(group: Path, version: int) -> int | None:
    limit, usage = (
        ("memory.max", "memory.current")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    try:
        most, used = (int(cgroup.read(group / name)) for name in (limit, usage))
    except ValueError:  # "max", or no such file
        return None
    fields = cgroup.fields(cgroup.read(group / "memory.stat"))
    prefix = "" if version == 2 else "total_"
    cached = sum(fields.get(f"{prefix}{kind}_file", 0) for kind in ("inactive", "active"))
    return most - used + cached


def _address_space(proc: Path) -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = cgroup.read(proc / "self" / "statm").split()
    if soft == resource.RLIM_INFINITY or not pages:
        return None
    return soft - int(pages[0]) * resource.getpagesize()
