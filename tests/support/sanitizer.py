"""What a build with sanitizers (JMM_SANITIZE) changes for the tests.

Example:
    >>> pytestmark = sanitizer.without_address_space
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jmm import build_info

_FLAGS = str(build_info()["flags"])
ADDRESS = "-fsanitize=address" in _FLAGS
THREAD = "-fsanitize=thread" in _FLAGS
ANY = ADDRESS or THREAD

# How much longer a process of the tests may take before it counts as hung.
SLOWER = 8 if ANY else 1

measures_memory = pytest.mark.skipif(
    ANY, reason="a sanitizer reserves terabytes of address space and keeps what was freed"
)


def reports() -> dict[Path, str]:
    """The reports that tools/sanitize collects, of all processes so far."""
    folder = os.environ.get("JMM_SANITIZER_REPORTS")
    return {path: path.read_text() for path in Path(folder).iterdir()} if folder else {}


def summary(said: str) -> str:
    """The lines of a report that tell what and where; the end of any other text."""
    told = [line.strip() for line in said.splitlines() if re.search(r"ERROR|WARNING|error:", line)]
    frames = re.findall(r"#\d+ 0x[0-9a-f]+ in (.*)", said)[:12]
    return "\n".join([*told, *frames]) if told else said[-300:]


def environment(**options: object) -> dict[str, str]:
    """The environment with further ASAN_OPTIONS, for a process that prints its own reports."""
    if not ADDRESS:
        return dict(os.environ)
    added = {"log_path": "stderr", **options}
    words = [f"{name}={value}" for name, value in added.items()]
    asan = ":".join([os.environ.get("ASAN_OPTIONS", ""), *words])
    ubsan = ":".join([os.environ.get("UBSAN_OPTIONS", ""), "log_path=stderr"])
    return {**os.environ, "ASAN_OPTIONS": asan, "UBSAN_OPTIONS": ubsan}
