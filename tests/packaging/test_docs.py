"""Python blocks of README.md and docs/ that need no file of the reader's run; notebooks too."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A block that names a model file shows how to use the reader's own.
FILE_OF_THE_READER = '.gguf"'
SLOW = re.compile(r"^import ray|^from pyspark", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", code)
        for page in PAGES
        for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
        if FILE_OF_THE_READER not in code
    ]


def notebooks() -> list[tuple[str, str]]:
    """The code of each, all cells in one."""
    found = []
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        found.append((path.name, "\n".join(code)))
    return found


BLOCKS = [*blocks(), *notebooks()]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 8


def case(name: str, code: str) -> object:
    return pytest.param(name, code, id=name, marks=[pytest.mark.slow] * bool(SLOW.search(code)))


@pytest.mark.parametrize(("name", "code"), [case(*block) for block in BLOCKS])
def test_block_runs(name: str, code: str, tmp_path: Path) -> None:
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    if "jmm.search" in code:
        imported |= {"lancedb", "pypdfium2"}
    for package in sorted(imported):
        if find_spec(package) is None:
            pytest.skip(f"{name} needs {package}: it is not installed")
    if "pyspark" in imported and shutil.which("java") is None:
        pytest.skip(f"{name} needs Java")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
