"""On a processor that the build is not for, ``import jmm`` raises; it never dies of SIGILL."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from exactness import COMPONENT
from jmm import Embedder, _core, build_info, cpu

ROOT = Path(__file__).resolve().parents[2]
EVERY = re.findall(r'^    \{ "(\w+)"', (ROOT / "src/jmm/_cpu.c").read_text(), re.MULTILINE)
HASWELL = {"sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "movbe", "lzcnt", "bmi", "bmi2"}
HASWELL |= {"avx", "f16c", "fma", "avx2"}
# Linux's name of each in /proc/cpuinfo, where it is another.
LINUX = {
    "sse3": "pni",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "avxvnni": "avx_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
}
PLAINEST = set(list(cpu.levels().values())[-1])
# Levels may round F16 weights' activations or not.
F16_COMPONENT = 2e-3
IS_X86 = platform.machine() in ("x86_64", "AMD64")

x86_only = pytest.mark.skipif(not IS_X86, reason="not an x86 processor")


@x86_only
def test_this_processor() -> None:
    """Linux asks the processor too, and lists what it has enabled."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        pytest.skip("there is no /proc/cpuinfo")
    match = re.search(r"^flags\s*:(.*)$", info.read_text(), re.MULTILINE)
    assert match
    flags = set(match[1].split())
    found = cpu.available() or ()
    assert {"sse3", "popcnt"} <= set(found)
    assert {name for name in EVERY if LINUX.get(name, name) in flags} == set(found)


@x86_only
def test_what_this_build_needs() -> None:
    """ggml tells the same of itself, from inside."""
    said = str(build_info()["system_info"])
    needed = set(cpu.needed())
    for ours, theirs in {
        "ssse3": "SSSE3",
        "avx": "AVX",
        "avx2": "AVX2",
        "f16c": "F16C",
        "fma": "FMA",
        "bmi2": "BMI2",
        "avxvnni": "AVX_VNNI",
        "avx512f": "AVX512",
        "avx512vbmi": "AVX512_VBMI",
        "avx512vnni": "AVX512_VNNI",
        "avx512bf16": "AVX512_BF16",
    }.items():
        assert (ours in needed) == (f" {theirs} = 1 " in f"{said} "), ours
    assert needed


BUILDS = {"avx512": ("sse3", "avx2", "fma", "avx512f"), "avx2": ("sse3", "avx2", "fma")}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``machine(offered, builds=BUILDS, forced=None)``"""

    def pretend(
        offered: tuple[str, ...] | None,
        builds: dict[str, tuple[str, ...]] = BUILDS,
        forced: str | None = None,
    ) -> None:
        monkeypatch.setattr(cpu, "levels", lambda: builds)
        monkeypatch.setattr(cpu, "available", lambda: offered)
        monkeypatch.setenv(cpu.VARIABLE, forced or "")

    return pretend


@pytest.mark.parametrize(
    ("offered", "forced", "level"),
    [
        (BUILDS["avx512"], None, "avx512"),
        ((*BUILDS["avx512"], "amx_tile"), None, "avx512"),
        (BUILDS["avx2"], None, "avx2"),
        (None, None, "avx512"),  # not known: as on systems that cannot be asked
        (BUILDS["avx512"], "avx2", "avx2"),
        (BUILDS["avx512"], "avx512", "avx512"),
    ],
)
def test_the_fullest_level_that_runs(
    offered: tuple[str, ...] | None, forced: str | None, level: str, machine: Callable[..., None]
) -> None:
    machine(offered, forced=forced)
    assert cpu.choose() == level


@pytest.mark.parametrize(
    ("offered", "forced", "message"),
    [
        (
            ("sse3", "fma"),
            None,
            r"for processors with sse3, avx2, fma, and this one lacks avx2; .*pip install ",
        ),
        (BUILDS["avx2"], "avx512", r"lacks avx512f; unset JMM_CPU_LEVEL$"),
        (BUILDS["avx2"], "sse", r"^JMM_CPU_LEVEL is 'sse'; this jmm has avx512, avx2$"),
    ],
)
def test_what_is_lacking_is_named(
    offered: tuple[str, ...], forced: str | None, message: str, machine: Callable[..., None]
) -> None:
    machine(offered, forced=forced)
    with pytest.raises(ImportError, match=message):
        cpu.choose()


def test_one_build_alone(machine: Callable[..., None]) -> None:
    builds = {"native": ("sse3", "avx2")}
    machine(("sse3", "avx2", "fma"), builds)
    assert cpu.choose() == "native"
    machine(("sse3",), builds)
    with pytest.raises(ImportError, match=r"lacks avx2; .*pip install "):
        cpu.choose()


def test_the_level_in_use() -> None:
    assert build_info()["level"] == cpu.LEVEL
    plainest = list(cpu.levels())[-1]
    name = Path(_core.__file__).name.partition(".")[0]
    assert name == ("_core" if plainest == cpu.LEVEL else f"_core_{cpu.LEVEL}")


@pytest.mark.parametrize("level", sorted(cpu.levels()))
def test_a_level_by_name(level: str) -> None:
    """Each build that runs here gives the vectors of the one in use."""
    if not set(cpu.levels()[level]) <= set(cpu.available() or cpu.levels()[level]):
        pytest.skip(f"this processor cannot run {level}")
    script = (
        "from jmm import Embedder, build_info\n"
        "print(build_info()['level'])\n"
        "print(Embedder(n_threads=1).encode_query('a red bus').tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, cpu.VARIABLE: level},
        capture_output=True,
        text=True,
        check=True,
    )
    name, vector = done.stdout.split()
    assert name == level
    wanted = Embedder(n_threads=1).encode_query("a red bus")
    found = np.frombuffer(bytes.fromhex(vector), np.float32)
    limit = COMPONENT if level == cpu.LEVEL else F16_COMPONENT
    assert np.abs(found - wanted).max() <= limit


def emulated(processor: str, script: str) -> subprocess.CompletedProcess[str]:
    qemu = shutil.which("qemu-x86_64")
    if qemu is None or not IS_X86:
        pytest.skip("needs Debian's qemu-user and an x86 processor")
    words = [qemu, "-cpu", processor, sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


def test_import_where_avx_is_missing() -> None:
    if not {"avx", "avx2"} & PLAINEST:
        pytest.skip("this build needs no AVX")
    done = emulated("Westmere", "import jmm")
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: this build of jmm is for processors with ")
    assert "and this one lacks " in last
    assert "avx" in last.split("lacks ")[1]


def test_on_a_plain_avx2_machine() -> None:
    if not PLAINEST <= HASWELL:
        pytest.skip("this build is for a later processor: JMM_NATIVE=OFF makes one for all")
    script = (
        "from jmm import Embedder, cpu\n"
        "print(*cpu.available())\n"
        "print(Embedder(n_threads=1).encode_query('a red bus').tobytes().hex())"
    )
    done = emulated("Haswell", script)
    assert done.returncode == 0, done.stderr
    features, vector = done.stdout.split("\n")[:2]
    assert set(features.split()) == HASWELL
    wanted = Embedder(n_threads=1).encode_query("a red bus")
    found = np.frombuffer(bytes.fromhex(vector), np.float32)
    assert np.abs(found - wanted).max() <= COMPONENT
