"""Memory of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

_FIELDS = {"VmHWM": "peak", "VmRSS": "now", "RssAnon": "anonymous", "RssFile": "file"}


def memory() -> dict[str, int]:
    """Bytes: ``peak`` resident, and what is resident now, private and from files."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in _FIELDS:
            found[_FIELDS[name]] = int(value.split()[0]) * 1024
    return found
