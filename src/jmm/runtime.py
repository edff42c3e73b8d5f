"""What this build and this machine offer."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

from jmm import _core, arguments, cgroup, cpu
from jmm.errors import ForkedProcessError, InputError

MAX_THREADS = 512
"""GGML_MAX_N_THREADS."""

# A build for GPUs has asked the driver for them when it was imported.
_PID = os.getpid()

_logger = logging.getLogger("jmm")


def build_info() -> dict[str, object]:
    """Tells what this build is made of.

    Returns:
        ``version`` of jmm, ``llama_cpp`` version, ``patches`` applied to it in order,
        ``compiler``, ``flags``, ``backends`` ("CPU", and "CUDA" and the like of builds for GPUs),
        ``system_info`` (instruction sets, as ggml words them), and ``level``, of several builds
        in one wheel the one that runs: "avx512" or "avx2", or "native" for a build for one
        machine. JMM_CPU_LEVEL in the environment chooses another.

    Example:
        >>> build_info()["llama_cpp"]
        'b11549'
    """
    return {**_core.build_info(), "level": cpu.LEVEL}


def devices() -> list[dict[str, object]]:
    """Lists the devices that this build can compute on.

    Returns:
        Per device ``name``, ``description``, ``kind`` ("cpu", "gpu", "igpu", "accel" or
        "other"), ``memory_free`` and ``memory_total`` in bytes.

    Example:
        >>> devices()[-1]["kind"]
        'cpu'
    """
    return _core.devices()


def gpu(name: str | None, n_layers: int) -> str | None:
    """Chooses where a model runs.

    Args:
        name: A GPU's name as `devices` gives it, None for the first GPU, "cpu" for none.
        n_layers: How many layers are wanted on it, -1 for all.

    Returns:
        Name of the GPU, None for the CPU.

    Raises:
        InputError: There is no such device, or the two arguments contradict each other.
        ForkedProcessError: This process was forked from one that had imported jmm, and it cannot
            use a GPU.
    """
    found = _core.devices(with_memory=False)
    gpus = [
        str(entry["name"])
        for entry in sorted(found, key=lambda entry: str(entry["kind"]))
        if entry["kind"] in ("gpu", "igpu")
    ]
    on_cpu = isinstance(name, str) and name.lower() == "cpu"
    if name is not None and not on_cpu and name not in gpus:
        raise InputError(
            f"device is {name!r}; there are {', '.join(['cpu', *gpus])}, and this build is for "
            f"{', '.join(_backends())}"
        )
    if (on_cpu and n_layers > 0) or (name in gpus and n_layers == 0):
        raise InputError(
            f"device is {name!r} and n_gpu_layers is {n_layers}; leave one of them out"
        )
    if on_cpu or n_layers == 0:
        return None
    if not gpus and _backends() != ["CPU"]:
        _logger.warning(
            "this build is for %s and found no GPU, the CPU computes: %s",
            ", ".join(_backends()),
            "; ".join(_core.START_ERRORS) or "the driver names none",
        )
    if gpus and os.getpid() != _PID:
        raise ForkedProcessError(
            f"jmm was imported in process {_PID} and this is process {os.getpid()}, forked from "
            'it, which can use no GPU; start processes by spawn, or pass device="cpu"'
        )
    return name or next(iter(gpus), None)


def _backends() -> list[str]:
    backends = _core.build_info()["backends"]
    return [str(name) for name in backends] if isinstance(backends, list) else []


def set_log_level(level: int | str) -> None:
    """Sets from which level on log lines reach ``logging.getLogger("jmm")``.

    Native lines come from its child ``jmm.native``: errors as ERROR, warnings as INFO, the rest
    as DEBUG. Nothing is printed unless the application attaches a handler. The default is
    WARNING.

    Args:
        level: A level of `logging`, as number or name.

    Raises:
        InputError: `logging` has no such level.

    Example:
        >>> set_log_level("INFO")
    """
    value = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"level is {level!r}; a level of the logging module is needed")
    logging.getLogger("jmm").setLevel(value)
    _core.set_native_log_level(max(logging.NOTSET, min(value, logging.CRITICAL)))


def threads(n_threads: int | None) -> int:
    """How many threads compute: what was asked for, or what this process may use.

    Raises:
        InputError: The number is not allowed.
    """
    return arguments.count("n_threads", n_threads, MAX_THREADS) or default_threads()


def default_threads() -> int:
    """Cores that this process may use: its affinity, and its cgroup's quota rounded up.

    Example:
        >>> 1 <= default_threads() <= os.cpu_count()
        True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _cgroup_quota(cgroup.MEMBERSHIP, cgroup.ROOT)
    return max(1, math.ceil(min(count, quota, MAX_THREADS)))


def _cgroup_quota(membership: Path, root: Path) -> float:
    """CPUs that the control groups of this process allow, infinity without a limit.

    Version 2 writes "quota period" (or "max period") into cpu.max, version 1 two files, with a
    quota of -1 for none.
    """
    limits = (
        _limit(group, version=version) for group, version in cgroup.groups("cpu", membership, root)
    )
    return min(limits, default=math.inf)


def _limit(group: Path, *, version: int) -> float:
    if version == 2:
        words = cgroup.read(group / "cpu.max").split()
    else:
        words = [cgroup.read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf
