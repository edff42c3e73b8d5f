"""Stubs say what the built modules have: names, signatures, classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What Cython adds to every module by itself.
GENERATED = r"jmm\._core\..*__(reduce_cython|setstate_cython|test|pyx_capi)__"


@pytest.mark.parametrize("module", ["_core", "_cpu"])
def test_stub_agrees_with_the_module(module: str, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="the stub test needs mypy: pip install mypy")
    (tmp_path / "generated").write_text(GENERATED + "\n")
    options = ["--concise", "--allowlist", "generated", "--ignore-unused-allowlist"]
    options += ["--mypy-config-file", str(ROOT / "pyproject.toml")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", f"jmm.{module}", *options],
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
