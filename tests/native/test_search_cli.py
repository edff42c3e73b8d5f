"""``jmm index`` and ``jmm search``: what is printed, what is written, and the exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from jmm import Embedder
from jmm.cli import main
from jmm.cli.options import BUILT_IN
from jmm.search import Index, store
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
    assert line == f"{hit['score']:+.4f}  {files / 'a.png'}  (and 1 more file)\n"
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


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x", "a", "--top", "0"],
        ["search", "x", "a", "--candidates", "-1"],
        ["search", "x", "a", "--open-sheet", "out.jpg"],
        ["search", "x", "--image", "a.pdf", "--page", "0"],
        ["search", "x", "--image", "a.png", "--page", "1"],
        ["search", "x", "a", "--page", "1"],
        ["search", "x", "a", "--threads", "0"],
        ["index", "", "--into", "x"],
        ["index", "a", "--into", "x", "--max-pixels", "0"],
    ],
)
def test_wrong_usage_costs_no_import(
    words: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "needed", None)
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "jmm " in err.splitlines()[-1]
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_costs_no_import(
    index: Path, files: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(store, "needed", loaded)
    monkeypatch.setattr(Embedder, "__init__", loaded)
    monkeypatch.chdir(tmp_path)
    for words, why in (
        (["search", "none", "a"], "none is no index"),
        (["search", index, "a", "--open-sheet", "no/out.png"], "there is no folder no"),
        (
            ["search", index, "--image", files / "a.png", "--open-sheet", files / "a.png"],
            "would overwrite what is read",
        ),
    ):
        assert run(*words) == 1
        assert why in capsys.readouterr().err


def test_the_sheet_overwrites_nothing_that_is_indexed(
    index: Path, files: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = (files / "a.png").read_bytes()
    link = tmp_path / "link.png"
    link.symlink_to(files / "a.png")
    for target in (files / "a.png", link):
        assert run("search", index, "rain", "--open-sheet", target) == 1
        assert "would overwrite what is indexed" in capsys.readouterr().err
    assert (files / "a.png").read_bytes() == before
    assert link.is_symlink()


def test_hits_come_before_the_sheet(
    index: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jmm.search.contact_sheet", fails)
    older = tmp_path / "out.png"
    older.write_bytes(b"older")
    assert run("search", index, "rain", "--open-sheet", older) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert err.endswith(f"jmm: [Errno 28] No space left on device: '{older}'\n")
    assert older.read_bytes() == b"older"
    assert run("search", index, "rain", "--json", "--open-sheet", older) == 1
    assert len(json.loads(capsys.readouterr().out)) == 4
    assert sorted(os.listdir(tmp_path)) == ["files", "index", "out.png"]


def test_what_is_said_beside_the_answer(
    index: Path, files: Path, tmp_path: Path, capsys: Capture
) -> None:
    sheet = tmp_path / "out.png"
    assert run("search", index, "rain", "--open-sheet", sheet) == 0
    assert capsys.readouterr().err == f"jmm: {BUILT_IN}\njmm: written: {sheet}\n"
    assert run("search", index, "rain", "--open-sheet", sheet, "--quiet") == 0
    assert capsys.readouterr().err == ""
    (files / "d.docx").write_text("")
    assert run("index", files, "--into", index) == 0
    out, err = capsys.readouterr()
    assert err == f"jmm: {BUILT_IN}\n"
    assert out.splitlines()[1] == "1 file passed over (.docx)"
    empty = tmp_path / "empty"
    assert run("index", tmp_path / "out.png", "--into", tmp_path / "two", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_pages"] == 1
    (tmp_path / "nothing").mkdir()
    assert run("index", tmp_path / "nothing", "--into", empty) == 0
    assert "0 files indexed (0 pages embedded)" in capsys.readouterr().out
    assert run("search", empty, "rain") == 0
    assert capsys.readouterr().err.endswith("has no pages: nothing can be found\n")


def test_one_is_singular_and_a_renamed_file_is_not_removed(
    files: Path, index: Path, capsys: Capture
) -> None:
    (files / "c.txt").rename(files / "d.txt")
    (files / "e.txt").write_text("new", encoding="utf-8")
    assert run("index", files, "--into", index) == 0
    assert capsys.readouterr().out == (
        "1 file indexed (1 page embedded), 2 unchanged, 1 renamed, 0 removed, 0 failed; "
        f"5 pages in {index}\n"
    )


def test_search_by_a_page_of_a_pdf(index: Path, files: Path, capsys: Capture) -> None:
    words = ["search", index, "--image", files / "b.pdf", "--top", "1", "--json"]
    for number in (1, 2):
        assert run(*words, "--page", number) == 0
        (hit,) = json.loads(capsys.readouterr().out)
        assert (hit["path"], hit["page"]) == (str(files / "b.pdf"), number)
        assert hit["cosine"] == pytest.approx(1, abs=1e-4)
    assert run(*words, "--page", 3) == 1
    out, err = capsys.readouterr()
    assert json.loads(out).keys() == {"error"}
    assert "b.pdf: there is no page 3; it has 2" in err


def test_a_separate_projector(files: Path, tmp_path: Path, capsys: Capture) -> None:
    projector = search.write_projector(tmp_path / "projector.gguf")
    assert run("index", files, "--into", tmp_path / "two", "--projector", projector) == 0
    record = json.loads((tmp_path / "two" / "index.json").read_text())
    assert record["model"]["multi_vector_dim"] == search.TOKEN_DIM
    moved = projector.rename(tmp_path / "moved.gguf")
    assert run("search", tmp_path / "two", "rain", "--projector", moved) == 0


def test_errors_are_json_too(
    index: Path, files: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("search", index, "", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": "the text is empty: it has no tokens"}
    assert err.endswith("jmm: the text is empty: it has no tokens\n")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Embedder, "encode_document", interrupt)
    assert run("index", files, "--into", tmp_path / "two", "--json") == 130
    assert json.loads(capsys.readouterr().out)["error"].startswith("interrupted")


def test_nothing_commands_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a\x1b[2J\nb.txt").write_text("red\x1b]0;title\x07 \x9b31m", encoding="utf-8")
    (folder / "c\x1b[2J.png").write_bytes(b"no picture")
    (folder / "d.\x1b[2J").write_bytes(b"")
    assert run("index", folder, "--into", tmp_path / "index") == 1
    assert run("search", tmp_path / "index", "red") == 0
    out, err = capsys.readouterr()
    assert not set("\x1b\x07\x9b") & set(out + err)
    assert r"a\x1b[2J\x0ab.txt  passage 1  red\x1b]0;title\x07 \x9b31m" in out
    assert r"c\x1b[2J.png: no picture" in err
    assert run("search", tmp_path / "index", "red", "--json") == 0
    (hit,) = json.loads(capsys.readouterr().out)
    assert hit["path"] == str(folder / "a\x1b[2J\nb.txt")


def test_bars_are_labelled(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("jmm.cli.index.shows_progress", lambda _: True)
    assert run("index", files, "--into", tmp_path / "index") == 0
    err = capsys.readouterr().err
    assert "reading files: 100%" in err
    assert "embedding pages: 100%" in err
    assert "file/s" in err
    assert "page/s" in err


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
