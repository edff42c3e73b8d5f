"""What this machine and this installation offer."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from typing import Any

from jmm import cgroup, cpu, memory, runtime

# Of pyproject.toml's extras, those that the package's own users have.
EXTRAS = ("convert", "hub", "search", "stores", "parity")

_PACKAGES = ("numpy", "pillow", "tqdm")
_REQUIREMENT = re.compile(r"^([\w.-]+)[^;]*(?:;.*extra == ['\"]([\w-]+)['\"].*)?$")


def environment() -> dict[str, Any]:
    """Tells what may matter when something does not work.

    Returns:
        Plain values: ``build`` (as `build_info`), ``python``, ``system``, ``processor``,
        ``instruction_sets`` (of the ``machine``, which the ``build`` needs, and which of them are
        ``missing``), ``threads`` (taken by default, of the process's affinity, of the machine),
        ``memory`` in bytes, ``devices``, ``packages`` and per extra its packages, by version;
        None for what is missing or not known.

    Example:
        >>> environment()["instruction_sets"]["missing"]
        []
    """
    machine, build = cpu.available(), cpu.needed()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "build": runtime.build_info(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "instruction_sets": {
            "machine": None if machine is None else list(machine),
            "build": list(build),
            "missing": [] if machine is None else [name for name in build if name not in machine],
        },
        "threads": {
            "default": runtime.default_threads(),
            "affinity": len(affinity(0)) if affinity else None,
            "machine": os.cpu_count(),
        },
        "memory": _memory(),
        "devices": runtime.devices(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "extras": _extras(),
    }


def _processor() -> str | None:
    text = cgroup.read(memory.PROC / "cpuinfo")
    match = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1] if match else platform.processor() or None


def _memory() -> dict[str, int | None]:
    """Of the machine, and what the control group of this process allows."""
    machine = cgroup.fields(cgroup.read(memory.PROC / "meminfo"), ":")
    found: dict[str, int | None] = {}
    for name, key in (("total", "MemTotal"), ("available", "MemAvailable")):
        found[name] = machine[key] * 1024 if key in machine else None
    limit = cgroup.read(cgroup.ROOT / "memory.max").strip()
    found["limit"] = int(limit) if limit.isdigit() else None
    return found


def _extras() -> dict[str, dict[str, str | None]]:
    try:
        requirements = importlib.metadata.requires("jmm") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    found: dict[str, dict[str, str | None]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and match[2] in EXTRAS:
            found.setdefault(match[2], {})[match[1]] = _version(match[1])
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
