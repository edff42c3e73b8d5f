"""ggml's AMX tiles: every byte of their configuration, on every use, and no word without them.

Guards patches/0011-amx-tile-config.patch. The probe runs ggml's own function; a CPU
without AMX raises SIGILL at ``ldtilecfg`` and the probe reads the operand itself.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TREE = Path(os.environ.get("JMM_LLAMA_CPP_DIR") or HERE.parents[1] / "extern" / "llama.cpp")
SOURCE = TREE / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"

# Layout: Intel SDM volume 2, LDTILECFG. Values: the table above the function in mmq.cpp,
# B (tiles 0, 1) 8 rows of 64 bytes, A (2, 3) 16 of 32, C (4 to 7) 16 of 64.
PALETTE, START_ROW = 1, 0
COLSB = (64, 64, 32, 32, 64, 64, 64, 64)
ROWS = (8, 8, 16, 16, 16, 16, 16, 16)
EXPECTED = struct.pack("<BB14x8H16x8B8x", PALETTE, START_ROW, *COLSB, *ROWS)


def cut(text: str, pattern: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        pytest.fail(f"{SOURCE.name} has no text like {pattern!r}: adapt this test to the new tree")
    return found.group(0)


@pytest.fixture(scope="module", params=["-O1", "-O2", "-O3"])
def loads(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The 64 bytes loaded by calls 1 and 2 on one thread and by call 1 on another."""
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        pytest.skip("the probe reads Linux x86-64 signal frames")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler: install g++ or set CXX")
    if not SOURCE.exists():
        pytest.skip(f"no llama.cpp tree at {TREE}: build once or set JMM_LLAMA_CPP_DIR")
    folder = tmp_path_factory.mktemp("amx")
    text = SOURCE.read_text(encoding="utf-8")
    struct_text = cut(text, r"struct tile_config_t\s*\{.*?\n\};\n")
    function_text = cut(text, r"inline void ggml_tile_config_init\(void\) \{.*?\n\}\n")
    (folder / "tile_config.inc").write_text(struct_text + function_text, encoding="utf-8")
    binary = folder / "probe"
    flags = ["-std=c++17", request.param, "-mamx-tile", "-mamx-int8", "-pthread", f"-I{folder}"]
    subprocess.run(
        [compiler, *flags, str(HERE / "amx" / "probe.cpp"), "-o", str(binary)], check=True
    )
    run = subprocess.run([binary], check=True, capture_output=True, text=True)
    return [bytes.fromhex(line) for line in run.stdout.split()]


def test_the_whole_configuration_is_loaded(loads: list[bytes]) -> None:
    assert loads[0].hex(" ", 2) == EXPECTED.hex(" ", 2)


def test_it_is_loaded_on_every_use(loads: list[bytes]) -> None:
    assert any(loads[0])
    assert any(loads[1]), "a second use on the same thread loaded nothing"
    assert loads[1] == loads[0]


def test_it_is_loaded_on_another_thread(loads: list[bytes]) -> None:
    assert loads[2].hex(" ", 2) == EXPECTED.hex(" ", 2)


def test_nothing_is_printed_where_there_are_no_tiles() -> None:
    """Guards patches/0044-amx-no-print.patch; every processor without AMX comes this way."""
    source = SOURCE.with_name("amx.cpp")
    if not source.exists():
        pytest.skip(f"no llama.cpp tree at {TREE}: build once or set JMM_LLAMA_CPP_DIR")
    begin = cut(source.read_text(encoding="utf-8"), r"static bool ggml_amx_init\(\) \{.*?\n\}\n")
    assert "XFEATURE_XTILEDATA" in begin
    assert not re.search(r"print|std::c", begin)
