"""Whether this processor can run the native module; imported before it."""

from __future__ import annotations

from jmm import _cpu


def needed() -> tuple[str, ...]:
    """Instruction sets that the native module was compiled for.

    Example:
        >>> set(needed()) <= set(available() or needed())
        True
    """
    return tuple(_cpu.NEEDED.split())


def available() -> tuple[str, ...] | None:
    """Instruction sets that processor and operating system offer; None where that is unknown."""
    found = _cpu.available()
    return None if found is None else tuple(found)


def check() -> None:
    """Keeps the native module from ending the process by an illegal instruction.

    Raises:
        ImportError: It was compiled for instruction sets that this processor lacks.
    """
    offered = available()
    lacking = [name for name in needed() if offered is not None and name not in offered]
    if lacking:
        raise ImportError(
            f"this build of jmm is for processors with {', '.join(needed())}, and this one lacks "
            f"{', '.join(lacking)}; build it on this machine, for what it has: "
            "pip install --force-reinstall --no-binary jmm jmm"
        )


check()
