"""What the system says of free memory, and what settings are refused."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from jmm import memory
from jmm.errors import OutOfMemoryError

if sys.platform != "linux":
    pytest.skip("free memory is told as Linux tells it", allow_module_level=True)

MEMINFO = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\nSwapFree: 500 kB\nHuge: 0\n"
MACHINE = 3500 * 1024


def left(
    folder: Path, membership: str, files: dict[str, str], meminfo: str = MEMINFO
) -> int | None:
    """Free bytes of a process in a tree of control groups that holds ``files``."""
    files = {f"cgroup/{name}": content for name, content in files.items()}
    for name, content in {**files, "proc/meminfo": meminfo, "proc/self/cgroup": membership}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return memory.available(folder / "proc", folder / "cgroup")


def version_2(group: str, most: object, used: int, *files: int) -> dict[str, str]:
    inactive, active = files or (0, 0)
    return {
        f"{group}/memory.max": f"{most}\n",
        f"{group}/memory.current": f"{used}\n",
        f"{group}/memory.stat": f"anon 1\nactive_file {active}\ninactive_file {inactive}\nx y\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MACHINE),
        (version_2("a/b", 5000, 2000), 3000),
        (version_2("a/b", 5000, 2000, 700, 40), 3740),
        (version_2("a/b", "max", 2000), MACHINE),
        (version_2("a/b", "max", 2000) | version_2("a", 900, 100), 800),
        (version_2("a/b", 500, 100) | version_2("a", 900, 100), 400),
        (version_2("a/b", 100, 500), 0),
        (version_2(".", 5000, 1000), 4000),  # a container sees its own group as the root
        (version_2("a/other", 10, 0), MACHINE),
        (version_2("a/b", 2**62, 0), MACHINE),
        ({"a/b/memory.max": "5000\n"}, MACHINE),
        ({"a/b/memory.max": "junk\n", "a/b/memory.current": "1\n"}, MACHINE),
    ],
    ids=str,
)
def test_cgroup_2(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert left(tmp_path, "0::/a/b\n", files) == expected


def test_cgroup_1(tmp_path: Path) -> None:
    files = {
        "memory/a/memory.limit_in_bytes": "9000\n",
        "memory/a/memory.usage_in_bytes": "6000\n",
        "memory/a/memory.stat": "inactive_file 5\ntotal_inactive_file 100\ntotal_active_file 20\n",
        "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
        "memory/memory.usage_in_bytes": "6000\n",
        "cpu/a/memory.limit_in_bytes": "1\n",
    }
    assert left(tmp_path, "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n", files) == 3120


@pytest.mark.parametrize("meminfo", ["", "MemTotal: 5 kB\n", "MemAvailable: junk kB\n"])
def test_nothing_is_known(tmp_path: Path, meminfo: str) -> None:
    assert left(tmp_path, "0::/\n", {}, meminfo) is None


def test_address_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = (2**20, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limit)
    assert left(tmp_path, "0::/\n", {}) == MACHINE  # what is used is not known
    (tmp_path / "proc" / "self" / "statm").write_text("10 5 1 1 0 1 0\n")
    used = 10 * resource.getpagesize()
    assert left(tmp_path, "0::/\n", {}) == min(MACHINE, 2**20 - used)


def test_here() -> None:
    free = memory.available()
    assert free is not None
    assert 2**20 < free < 2**50


def test_settings_that_cannot_fit() -> None:
    found = {"loaded": 10**9, "texts": 2 * 10**9, "longest_text": 4 * 10**9, "picture": 3 * 10**9}
    given = {"longest_text": "n_ctx=32768", "picture": "max_pixels=5017600"}
    memory.check_settings(found, given, 3 * 10**9)
    memory.check_settings(found, given, None)
    memory.check_settings(found, {}, 10)
    with pytest.raises(OutOfMemoryError) as caught:
        memory.check_settings(found, given, 2_999_000_000)
    assert str(caught.value) == (
        "n_ctx=32768 cannot fit: the largest item that it allows takes 3,000 MB beside the model, "
        "and 2,999 MB are free; lower it"
    )
    with pytest.raises(OutOfMemoryError, match="max_pixels=5017600 cannot fit"):
        memory.check_settings(found, {"picture": "max_pixels=5017600"}, 10**9)
