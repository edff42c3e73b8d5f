"""Imports point one way: errors <- pure modules <- embedder <- cli and the other rooms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "jmm"

NATIVE_USERS = {"doctor", "embedder", "files", "quantizer", "runtime", "vision"}
PURE = {"images", "preprocess", "profiles", "batching", "vectors"}

# A module may import what has a lower number. Unless listed, single files are pure and folders
# are rooms above the engine; `demo` is below it, since Embedder() loads its model.
ERRORS, PURE_LAYER, ROOM = 0, 1, 9
LAYERS = {
    "errors": ERRORS,
    "_cpu": ERRORS,
    "vectors": PURE_LAYER,
    "demo": PURE_LAYER,
    "gguf_header": PURE_LAYER,
    "images": PURE_LAYER,
    "arguments": 2,
    "hub": 2,
    "projector": 2,
    "results": 2,
    "tiles": 2,
    "_core": 2,
    "processor": 3,
    "memory": 3,
    "runtime": 3,
    "files": 3,
    "fingerprint": 4,
    "pictures": 4,
    "kinds": 5,
    "pipeline": 6,
    "trace": 7,
    "call": 7,
    "vision": 7,
    "embedder": 8,
}
TOP = {"__init__", "__main__"}


def layer(module: str) -> int:
    if module in LAYERS:
        return LAYERS[module]
    return ROOM if (SOURCE / module).is_dir() else PURE_LAYER


def imported(source: str) -> Iterator[str]:
    """Names below ``jmm`` that a module imports, wherever in the file; relative ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("jmm."):
                    yield alias.name.split(".")[1]
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if node.level or parts[0] == "jmm":
                inside = [part for part in parts if part not in ("", "jmm")]
                yield from inside[:1] or (alias.name for alias in node.names)


def files() -> list[tuple[str, Path]]:
    found = [(path.relative_to(SOURCE).parts[0], path) for path in sorted(SOURCE.rglob("*.py"))]
    return [(name.removesuffix(".py"), path) for name, path in found]


def imports_of(module: str) -> set[str]:
    return {
        name
        for owner, path in files()
        if owner == module
        for name in imported(path.read_text())
        if name != module
    }


MODULES = sorted({name for name, _ in files()} - TOP)


def test_the_reader_sees_every_kind_of_import() -> None:
    source = (
        "import jmm.images\nfrom jmm import vectors\nfrom jmm.errors import JmmError\n"
        "from . import profiles\nfrom .batching import x\nimport numpy\n"
        "def f():\n    from jmm import _core\n"
    )
    expected = {"images", "vectors", "errors", "profiles", "batching", "_core"}
    assert set(imported(source)) == expected


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    if layer(module) == ROOM:
        upward = {name for name in imports_of(module) if layer(name) > ROOM}
    else:
        upward = {name for name in imports_of(module) if layer(name) >= layer(module)}
    assert upward == set(), f"jmm.{module} must not import {sorted(upward)}"


@pytest.mark.parametrize("module", sorted(PURE & set(MODULES)))
def test_pure_modules_import_errors_alone(module: str) -> None:
    assert imports_of(module) <= {"errors"}


def test_few_modules_import_the_native_one() -> None:
    users = {module for module in MODULES if "_core" in imports_of(module)}
    assert users <= NATIVE_USERS
    assert users


def test_errors_imports_nothing_of_ours() -> None:
    assert imports_of("errors") == set()


def test_the_native_module_imports_errors_alone() -> None:
    sources = [*SOURCE.glob("*.pyx"), *SOURCE.glob("*.pxi")]
    text = "\n".join(path.read_text() for path in sources)
    found = set(re.findall(r"^\s*from\s+jmm\.(\w+)\s+import\b", text, re.MULTILINE))
    found |= set(re.findall(r"^\s*from\s+jmm\s+import\s+(\w+)", text, re.MULTILINE))
    found |= set(re.findall(r"^\s*import\s+jmm\.(\w+)", text, re.MULTILINE))
    assert found <= {"errors"}
