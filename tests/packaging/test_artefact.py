"""The built module itself: what it exports, needs and gives away."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

import pytest

from jmm import _core, _cpu, cpu

sys.path.insert(0, str(Path(__file__).parent))

import elf

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(_cpu.__file__).parent
SUFFIX = Path(_cpu.__file__).name.removeprefix("_cpu")
# The plainest level lies under the module's own name, a wheel's others beside it.
NAMES = ["_cpu", *(f"_core_{level}" for level in list(cpu.levels())[:-1]), "_core"]
MODULE = Path(_core.__file__)

CUBLAS = ["libcublas.so.13"]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the module is no ELF file here")


@pytest.fixture(scope="module", params=NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return FOLDER / f"{request.param}{SUFFIX}"


@pytest.fixture
def module(path: Path) -> elf.SharedObject:
    return elf.SharedObject(path)


def is_for_cuda(path: Path) -> bool:
    """Neither the driver's library nor the runtime's is needed, so that there need be no driver."""
    return path == MODULE and "CUDA" in _core.build_info()["backends"]


def test_it_is_for_this_python_or_the_stable_abi() -> None:
    assert SUFFIX in importlib.machinery.EXTENSION_SUFFIXES


def test_there_is_one_for_each_level() -> None:
    found = {path.name for path in FOLDER.iterdir() if path.name.endswith(SUFFIX)}
    assert found == {f"{name}{SUFFIX}" for name in NAMES}
    assert MODULE.name in found


@linux_only
def test_the_elf_reader_sees_exports_and_needs() -> None:
    numpy_core = pytest.importorskip("numpy._core._multiarray_umath")
    found = elf.SharedObject(Path(numpy_core.__file__))
    assert "PyInit__multiarray_umath" in found.exports()
    assert any(name.startswith("libc.so") for name in found.dynamic(elf.DT_NEEDED))


@linux_only
def test_only_the_init_function_is_exported(path: Path, module: elf.SharedObject) -> None:
    assert module.exports() == {"PyInit__cpu" if path.name.startswith("_cpu") else "PyInit__core"}


@linux_only
def test_only_system_libraries_are_needed(path: Path, module: elf.SharedObject) -> None:
    allowed = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpthread.so", "ld-linux")
    foreign = [n for n in module.dynamic(elf.DT_NEEDED) if not n.startswith((*allowed, "libdl.so"))]
    assert foreign == (CUBLAS if is_for_cuda(path) else [])


@linux_only
def test_there_is_no_search_path(path: Path, module: elf.SharedObject) -> None:
    """But to the package of cuBLAS, from where the module lies, in builds for CUDA."""
    assert module.dynamic(elf.DT_RPATH) == []
    beside = ["$ORIGIN/../nvidia/cu13/lib"]
    assert module.dynamic(elf.DT_RUNPATH) == (beside if is_for_cuda(path) else [])


def test_it_names_no_folder_of_the_build_machine(path: Path) -> None:
    data = path.read_bytes()
    folders = {str(ROOT), str(Path.home()), "/pip-build-env-", "/tmp/tmp"} - {"/"}
    assert [folder for folder in sorted(folders) if folder.encode() + b"/" in data] == []


def test_build_info_tells_source_and_patches() -> None:
    info = _core.build_info()
    series = (ROOT / "patches" / "series").read_text().splitlines()
    assert info["llama_cpp"] == "b11549"
    assert info["patches"] == [line for line in series if line and not line.startswith("#")]
    assert info["version"] == "0.1.0"
