"""``jmm index`` and ``jmm search``: what is printed, what is written, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from jmm import Embedder
from jmm.cli import main
from jmm.search import Index
from support import search

pytest.importorskip("lancedb", reason="needs pip install 'jmm[search]'")
pytest.importorskip("pypdfium2", reason="needs pip install 'jmm[search]'")

Capture = pytest.CaptureFixture[str]


def run(*words: object) -> int:
    return main([*map(str, words), "--threads", "1"])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    search.save_picture(folder / "a.png", 0)
    search.save_pdf(folder / "b.pdf", [1, 2])
    (folder / "c.txt").write_text("Rain\nall night. " + "It rained. " * 7, encoding="utf-8")
    return folder


@pytest.fixture
def index(files: Path, tmp_path: Path, capsys: Capture) -> Path:
    folder = tmp_path / "index"
    assert run("index", files, "--into", folder) == 0
    assert capsys.readouterr().out == (
        "3 files indexed (4 pages embedded), 0 unchanged, 0 removed, 0 failed; "
        f"4 pages in {folder}\n"
    )
    return folder


def test_search(index: Path, files: Path, capsys: Capture) -> None:
    assert run("search", index, "rain", "--top", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    with Embedder(n_threads=1) as embedder, Index(index, embedder) as opened:
        hits = opened.search("rain", top=3)
    assert len(lines) == 3
    where = {"picture": "", "pdf": "  page {}", "text": "  passage {}"}
    snippet = "  Rain all night. It rained. It rained. It rained. It rained. ..."
    for line, hit in zip(lines, hits, strict=True):
        shown = f"{hit.score:+.4f}  {hit.path}{where[hit.kind].format(hit.page)}"
        assert line == (shown + snippet if hit.kind == "text" else shown)


def test_search_by_picture(index: Path, files: Path, tmp_path: Path, capsys: Capture) -> None:
    (files / "copy.png").write_bytes((files / "a.png").read_bytes())
    assert run("index", files, "--into", index, "--quiet") == 0
    assert capsys.readouterr().out == ""
    words = ["--image", files / "a.png", "--top", "1"]
    assert run("search", index, *words) == 0
    line = capsys.readouterr().out
    assert run("search", index, *words, "--json") == 0
    (hit,) = json.loads(capsys.readouterr().out)
    assert line == f"{hit['score']:+.4f}  {files / 'a.png'}  (and 1 more files)\n"
    assert hit["cosine"] == pytest.approx(1, abs=1e-4)
    assert hit["paths"] == [str(files / "a.png"), str(files / "copy.png")]
    assert (hit["page"], hit["kind"]) == (1, "picture")
    assert run("search", index, *words, "--open-sheet", tmp_path / "out.png") == 0
    with Image.open(tmp_path / "out.png") as sheet:
        assert sheet.size[0] > 300


def test_failures(index: Path, files: Path, capsys: Capture) -> None:
    (files / "bad.png").write_bytes(b"no picture")
    (files / "c.txt").unlink()
    assert run("index", files, "none.txt", "--into", index, "--json") == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["n_unchanged"], report["n_removed"], report["pages_in_index"]) == (2, 1, 3)
    assert set(report["failed"]) == {str(files / "bad.png"), str(Path("none.txt").absolute())}
    assert [line for line in err.splitlines() if "bad.png: no picture" in line]


def test_settings_are_those_of_the_index(files: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "index"
    projector = search.write_projector(tmp_path / "projector.gguf")
    with Index.open(folder, create=True, projector=projector, max_pixels=7000) as index:
        index.add(files)
    assert run("index", files, "--into", folder) == 0
    assert "3 unchanged" in capsys.readouterr().out
    assert run("search", folder, "rain") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert run("index", files, "--into", folder, "--max-pixels", 7500) == 1
    assert "max_pixels: 7000 in the index, 7500 here" in capsys.readouterr().err
    projector.unlink()
    assert run("search", folder, "rain") == 1
    assert "projector.gguf" in capsys.readouterr().err


def test_no_index(tmp_path: Path, capsys: Capture) -> None:
    assert run("search", tmp_path / "none", "rain") == 1
    assert "is no index; `jmm index PATHS... --into" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "words", [["search", "x"], ["search", "x", "a", "--image", "b"], ["index", "a"]]
)
def test_wrong_usage(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2


def test_interrupted(
    files: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "encode_document", interrupt)
        assert run("index", files, "--into", tmp_path / "index") == 130
    assert capsys.readouterr().err.endswith(
        "jmm: interrupted; the same command goes on from here\n"
    )
    assert run("index", files, "--into", tmp_path / "index") == 0
    assert "3 files indexed (4 pages embedded)" in capsys.readouterr().out
