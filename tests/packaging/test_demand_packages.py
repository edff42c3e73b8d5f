"""Our options of pytest: what lacks a package fails, what has passed is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FINE = """
import pytest

def test_passes():
    pass

def test_other_reason():
    pytest.skip("no such processor")
"""
LACKING = """
import pytest

def test_says_so():
    pytest.skip("needs: pip install other")

def test_imports():
    pytest.importorskip("no_such_package")
"""
MODULE = """
import pytest

pytest.skip("needs: pip install other", allow_module_level=True)
"""


def run(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Exit code, and the tests that it names."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
    )
    named = [line.split(": ")[1] for line in done.stdout.splitlines() if "left out: " in line]
    return done.returncode, named


def test_exit_codes(tmp_path: Path) -> None:
    for name, text in (("fine", FINE), ("lacking", LACKING), ("module", MODULE)):
        (tmp_path / f"test_{name}.py").write_text(text)
    assert run(tmp_path, "test_fine.py", "--demand-packages") == (0, [])
    assert run(tmp_path) == (0, [])
    code, named = run(tmp_path, "--demand-packages")
    assert code == 1
    assert sorted(named) == [
        "test_lacking.py::test_imports",
        "test_lacking.py::test_says_so",
        "test_module.py",
    ]


def test_passed_tests_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_fine.py").write_text(FINE)
    file = tmp_path / "passed"
    (tmp_path / "test_later.py").write_text("def test_later(): pass\n")
    assert run(tmp_path, "test_fine.py", f"--passed={file}")[0] == 0
    assert file.read_text().splitlines() == ["test_fine.py::test_passes"]
    assert run(tmp_path, f"--passed={file}", "--demand-packages")[0] == 0
    added = file.read_text().splitlines()[1:]
    assert added == ["test_later.py::test_later"]


def test_the_script_gives_the_file_as_no_path() -> None:
    """pytest takes an option's value that is a path of its own for a folder of tests."""
    script = TESTS.parent / ".ci" / "run"
    lines = [line for line in script.read_text(encoding="utf-8").splitlines() if "--passed" in line]
    assert len(lines) == 2
    assert all('--passed="$scratch/passed"' in line for line in lines)
