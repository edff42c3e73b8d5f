"""The control groups of this process, on Linux: limits of processors and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def groups(controller: str, membership: Path, root: Path) -> Iterator[tuple[Path, int]]:
    """Yields the folders of the groups that may limit this process, and their version, 1 or 2.

    A limit of any ancestor counts too. In a container the own group is the root.
    """
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            yield base.joinpath(*parts[:depth]), 1 if controllers else 2


def read(path: Path) -> str:
    """The text of a file, "" if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def fields(text: str, separator: str = " ") -> dict[str, int]:
    """Lines of a name and a number; others are left out."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(separator)
        with contextlib.suppress(ValueError, IndexError):
            found[name] = int(rest.split()[0])
    return found
