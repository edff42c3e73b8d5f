"""Which files are found below the paths that a user names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmm.search.walk import Found, Unreadable, walk

KINDS = ("picture", "pdf", "text")


def found(*paths: Path, kinds: tuple[str, ...] = KINDS, besides: str = "/none") -> list[str]:
    items = walk([str(path) for path in paths], kinds, besides)
    return [os.path.relpath(item.path, paths[0]) for item in items if isinstance(item, Found)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.PNG", "c/d.pdf", "c/.x.txt", ".git/e.txt", "c/f.py", "index/g.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_order_and_what_is_passed_over(tree: Path) -> None:
    assert found(tree) == ["a.PNG", "b.txt", "c/d.pdf", "index/g.txt"]
    assert found(tree, besides=str(tree / "index")) == ["a.PNG", "b.txt", "c/d.pdf"]
    assert found(tree, kinds=("text",)) == ["b.txt", "index/g.txt"]


def test_what_is_named_is_never_passed_over(tree: Path) -> None:
    assert found(tree / ".git") == ["e.txt"]
    assert found(tree / "c" / ".x.txt") == ["."]
    assert list(walk([str(tree / "c" / "f.py")], KINDS, "/none")) == [
        Unreadable(
            str(tree / "c" / "f.py"),
            "neither picture, PDF nor text by its name; known are .avif .bmp .gif .jpeg .jpg "
            ".jp2 .pbm .pgm .png .ppm .tga .tif .tiff .webp .pdf .csv .log .markdown .md .org "
            ".rst .tex .text .tsv .txt",
        )
    ]


def test_each_file_once(tree: Path) -> None:
    assert found(tree, tree / "c", tree / "b.txt", tree) == found(tree)


@pytest.fixture
def bottom(tmp_path: Path) -> Iterator[Path]:
    """A folder 1,200 levels down, taken away level by level: pytest's own removal would recurse."""
    deepest = tmp_path
    for _ in range(1200):
        deepest = deepest / "d"
        deepest.mkdir()
    yield deepest
    for path in deepest.iterdir():
        path.unlink()
    while deepest != tmp_path:
        deepest.rmdir()
        deepest = deepest.parent


def test_a_deep_tree(tmp_path: Path, bottom: Path) -> None:
    (bottom / "a.txt").write_text("")
    assert len(found(tmp_path)) == 1
