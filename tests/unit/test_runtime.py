"""Threads by affinity and cgroup, facts of the build, and the log level."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jmm import build_info, devices, runtime, set_log_level
from jmm.errors import ForkedProcessError, InputError
from jmm.runtime import _cgroup_quota


def quota(folder: Path, membership: str, files: dict[str, str]) -> float:
    """The limit of a process in a cgroup tree that holds ``files``."""
    for name, content in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "membership").write_text(membership)
    return _cgroup_quota(folder / "membership", folder / "cgroup")


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ({"a/b/cpu.max": "max 100000\n"}, math.inf),
        ({"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "max 100000\n"}, 0.5),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2),
        ({"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ({"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "400000 100000\n"}, 3),
        ({"cpu.max": "250000 50000\n"}, 5),  # a container sees its own group as the root
        ({"a/other/cpu.max": "100000 100000\n"}, math.inf),
        ({"a/b/cpu.max": ""}, math.inf),
        ({"a/b/cpu.max": "100000\n"}, math.inf),
        ({"a/b/cpu.max": "junk 100000\n"}, math.inf),
        ({"a/b/cpu.max": "100000 0\n"}, math.inf),
        ({}, math.inf),
    ],
    ids=str,
)
def test_cgroup_2(tmp_path: Path, files: dict[str, str], cpus: float) -> None:
    assert quota(tmp_path, "0::/a/b\n", files) == cpus


def version_1(group: str, quota_us: int, period_us: int) -> dict[str, str]:
    return {
        f"cpu/{group}/cpu.cfs_quota_us": f"{quota_us}\n",
        f"cpu/{group}/cpu.cfs_period_us": f"{period_us}\n",
    }


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        (version_1("a/b", 150_000, 100_000), 1.5),
        (version_1("a/b", -1, 100_000), math.inf),
        (version_1("a/b", -1, 100_000) | version_1("a", 200_000, 100_000), 2),
        (version_1("a/b", 300_000, 100_000) | version_1(".", 200_000, 100_000), 2),
        ({"cpu/a/b/cpu.cfs_quota_us": "100000\n"}, math.inf),
        ({"cpu.max": "100000 100000\n"}, math.inf),
        ({}, math.inf),
    ],
    ids=str,
)
@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpu", "cpuacct,cpu"])
def test_cgroup_1(tmp_path: Path, controllers: str, files: dict[str, str], cpus: float) -> None:
    membership = f"12:memory:/m\n4:{controllers}:/a/b\n1:name=systemd:/s\n"
    assert quota(tmp_path, membership, files) == cpus


def test_controllers_of_other_names_do_not_count(tmp_path: Path) -> None:
    files = version_1("a", 100_000, 100_000)
    assert quota(tmp_path, "3:cpuset:/a\n2:cpuacct:/a\n1:name=cpu:/a\n", files) == math.inf


def test_both_versions_at_once(tmp_path: Path) -> None:
    files = version_1("a", 300_000, 100_000) | {"b/cpu.max": "200000 100000\n"}
    assert quota(tmp_path, "4:cpu,cpuacct:/a\n0::/b\n", files) == 2


def test_a_colon_in_the_path(tmp_path: Path) -> None:
    assert quota(tmp_path, "0::/a:b\n", {"a:b/cpu.max": "200000 100000\n"}) == 2


def test_no_cgroup_at_all(tmp_path: Path) -> None:
    assert _cgroup_quota(tmp_path / "none", tmp_path) == math.inf


@pytest.mark.parametrize(
    ("cpus", "allowed", "threads"),
    [
        (8, math.inf, 8),
        (8, 1.5, 2),
        (8, 2, 2),
        (8, 0.1, 1),
        (2, 16, 2),
        (1000, math.inf, 512),
    ],
)
def test_default_threads(
    monkeypatch: pytest.MonkeyPatch, cpus: int, allowed: float, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)), raising=False)
    monkeypatch.setattr(runtime, "_cgroup_quota", lambda *_: allowed)
    assert runtime.default_threads() == threads


def test_default_threads_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert runtime.default_threads() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_default_threads_follow_the_affinity() -> None:
    program = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from jmm import Embedder, runtime\n"
        "with Embedder() as embedder:\n"
        "    print(runtime.default_threads(), embedder.info['n_threads'])\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "1 1\n"


def test_build_info() -> None:
    info = build_info()
    assert set(info) >= {
        "version",
        "llama_cpp",
        "patches",
        "compiler",
        "flags",
        "backends",
        "system_info",
    }
    assert info["llama_cpp"] == "b11549"
    patches = info["patches"]
    assert isinstance(patches, list)
    assert patches == sorted(patches)
    assert all(name.endswith(".patch") for name in patches)


def test_devices() -> None:
    found = devices()
    assert [device["kind"] for device in found].count("cpu") == 1
    for device in found:
        assert set(device) == {"name", "description", "kind", "memory_free", "memory_total"}
        assert device["memory_total"] >= device["memory_free"] >= 0


@pytest.fixture
def native_level(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Levels that reach the native module; the logger's own is put back."""
    logger = logging.getLogger("jmm")
    before = logger.level
    seen: list[int] = []
    monkeypatch.setattr(runtime._core, "set_native_log_level", seen.append)
    yield seen
    logger.setLevel(before)


@pytest.mark.parametrize(
    ("level", "value"),
    [
        ("DEBUG", 10),
        ("debug", 10),
        ("Info", 20),
        ("WARNING", 30),
        ("WARN", 30),
        ("ERROR", 40),
        ("CRITICAL", 50),
        (10, 10),
        (35, 35),
        (logging.ERROR, 40),
    ],
)
def test_log_level(native_level: list[int], level: int | str, value: int) -> None:
    set_log_level(level)
    assert native_level == [value]
    assert logging.getLogger("jmm").level == value


@pytest.mark.parametrize("level", ["", "loud", "Level 5", "10", None, True, 1.5, []])
def test_unknown_log_level(native_level: list[int], level: object) -> None:
    before = logging.getLogger("jmm").level
    with pytest.raises(InputError, match="a level of the logging module is needed"):
        set_log_level(level)  # type: ignore[arg-type]
    assert native_level == []
    assert logging.getLogger("jmm").level == before


@pytest.mark.parametrize("level", [2**40, 2**70, -(2**40)])
def test_log_level_beyond_a_c_int(level: int) -> None:
    before = logging.getLogger("jmm").level
    try:
        set_log_level(level)
    finally:
        set_log_level("WARNING")
        logging.getLogger("jmm").setLevel(before)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        {"name": "Vulkan0", "kind": "igpu"},
        {"name": "CUDA0", "kind": "gpu"},
        {"name": "CUDA1", "kind": "gpu"},
        {"name": "BLAS", "kind": "accel"},
        {"name": "CPU", "kind": "cpu"},
    ]
    monkeypatch.setattr(runtime._core, "devices", lambda *, with_memory: found)
    monkeypatch.setattr(runtime._core, "build_info", lambda: {"backends": ["CUDA", "CPU"]})


@pytest.mark.parametrize(
    ("name", "n_layers", "chosen"),
    [
        (None, -1, "CUDA0"),
        (None, 7, "CUDA0"),
        (None, 0, None),
        ("CUDA1", -1, "CUDA1"),
        ("CUDA1", 3, "CUDA1"),
        ("Vulkan0", -1, "Vulkan0"),
        ("cpu", -1, None),
        ("CPU", 0, None),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_gpu(name: str | None, n_layers: int, chosen: str | None) -> None:
    assert runtime.gpu(name, n_layers) == chosen


@pytest.mark.parametrize(
    ("name", "n_layers", "message"),
    [
        ("CUDA2", -1, "device is 'CUDA2'; there are cpu, CUDA0, CUDA1, Vulkan0, and"),
        ("BLAS", -1, "device is 'BLAS'"),
        ("cuda0", -1, "device is 'cuda0'"),
        (0, -1, "device is 0"),
        ("CUDA0", 0, "leave one of them out"),
        ("cpu", 1, "leave one of them out"),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_gpu_refused(name: Any, n_layers: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        runtime.gpu(name, n_layers)


@pytest.mark.usefixtures("two_gpus")
def test_gpu_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PID", runtime._PID + 1)
    for name in (None, "CUDA1"):
        with pytest.raises(ForkedProcessError, match="spawn"):
            runtime.gpu(name, -1)
    assert runtime.gpu("cpu", -1) is None


@pytest.mark.parametrize("backends", [["CPU"], ["CUDA", "CPU"]])
def test_no_gpu(
    backends: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A build for GPUs says that it computes elsewhere, unless that was asked for."""
    monkeypatch.setattr(
        runtime._core, "devices", lambda *, with_memory: [{"name": "CPU", "kind": "cpu"}]
    )
    monkeypatch.setattr(runtime._core, "build_info", lambda: {"backends": backends})
    with caplog.at_level(logging.WARNING, "jmm"):
        assert runtime.gpu("cpu", -1) is None
        assert runtime.gpu(None, 0) is None
        assert not caplog.records
        assert runtime.gpu(None, -1) is None
    assert len(caplog.records) == len(backends) - 1
