"""Which build of the native module this processor runs; imported before it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

from jmm import _cpu

VARIABLE = "JMM_CPU_LEVEL"
"""Environment variable that names a level, in place of the fullest that runs here."""


def levels() -> dict[str, tuple[str, ...]]:
    """Builds of the native module, the fullest first, with the instruction sets that each needs.

    A build for one machine has the one level "native"; a wheel for x86-64 has "avx512" and "avx2".

    Example:
        >>> set(needed()) in [set(sets) for sets in levels().values()]
        True
    """
    pairs = (entry.partition(":") for entry in _cpu.LEVELS.split(";"))
    return {name: tuple(sets.split()) for name, _, sets in pairs}


def choose() -> str:
    """The level to run: the one that the environment names, or the fullest that can.

    Raises:
        ImportError: There is none of that name, or this processor lacks what it needs.
    """
    builds, offered, forced = levels(), available(), os.environ.get(VARIABLE)
    if forced and forced not in builds:
        raise ImportError(f"{VARIABLE} is {forced!r}; this jmm has {', '.join(builds)}")
    for name in [forced] if forced else builds:
        if not _lacking(builds[name], offered):
            return name
    name = forced or list(builds)[-1]
    raise ImportError(
        f"this build of jmm is for processors with {', '.join(builds[name])}, and this one lacks "
        f"{', '.join(_lacking(builds[name], offered))}; "
        + (
            f"unset {VARIABLE}"
            if forced and len(builds) > 1
            else "build it on this machine, for what it has: "
            "pip install --force-reinstall --no-binary jmm jmm"
        )
    )


def needed() -> tuple[str, ...]:
    """Instruction sets that the native module in use was compiled for.

    Example:
        >>> set(needed()) <= set(available() or needed())
        True
    """
    return levels()[LEVEL]


def available() -> tuple[str, ...] | None:
    """Instruction sets that processor and operating system offer; None where that is unknown."""
    found = _cpu.available()
    return None if found is None else tuple(found)


def load(name: str) -> None:
    """Makes a level's build the module ``jmm._core``; the plainest is found without this."""
    if name == list(levels())[-1]:
        return
    own = Path(str(_cpu.__file__))
    path = str(own.with_name(own.name.replace("_cpu", f"_core_{name}", 1)))
    loader = importlib.machinery.ExtensionFileLoader("jmm._core", path)
    spec = importlib.util.spec_from_file_location("jmm._core", path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["jmm._core"] = module
    loader.exec_module(module)
    sys.modules["jmm"]._core = module  # type: ignore[attr-defined]


def _lacking(sets: tuple[str, ...], offered: tuple[str, ...] | None) -> list[str]:
    return [] if offered is None else [name for name in sets if name not in offered]


LEVEL = choose()
"""The level that runs."""

load(LEVEL)
