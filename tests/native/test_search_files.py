"""What an index makes of odd files and links, and which model it is for."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, ModelLoadError, OutOfMemoryError, demo
from jmm.files import read_header
from jmm.search import Hit, Index, MissingPageError, Sources, adding, contact_sheet, page
from jmm.search import encode as encode_module
from jmm.search.walk import Kind
from support import search

pytest.importorskip("lancedb", reason="needs pip install lancedb")
pytest.importorskip("pypdfium2", reason="needs pip install pypdfium2")

Files = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as loaded:
        yield loaded


# --- the model ---


def with_rope_theta(source: Path, target: Path, theta: float) -> Path:
    data = source.read_bytes()
    key = b"qwen2vl.rope.freq_base" + struct.pack("<I", 6)
    assert data.count(key) == 1
    at = data.index(key) + len(key)
    assert struct.unpack_from("<f", data, at)[0] != theta
    target.write_bytes(data[:at] + struct.pack("<f", theta) + data[at + 4 :])
    return target


def test_another_setting_is_another_model(tmp_path: Path, tiny_files: Files) -> None:
    model, _ = tiny_files("qwen25_small")
    other = with_rope_theta(model, tmp_path / model.name, 12345.0)
    with Embedder(model) as first, Embedder(other) as second:
        assert not np.allclose(first.encode_query("a b c d"), second.encode_query("a b c d"))
        with Index(tmp_path / "index", first):
            pass
        with pytest.raises(InputError, match=r"made by another model .*model: "):
            Index(tmp_path / "index", second)


def test_a_description_is_no_setting(tmp_path: Path, tiny_files: Files) -> None:
    model, mmproj = tiny_files("qwen25_small")
    for path in (model, mmproj):
        header = read_header(path)
        named = {**header.metadata, "general.name": "another", "tokenizer.chat_template": "x"}
        renamed = type(header)(**{**vars(header), "metadata": named})
        assert renamed.fingerprint() == header.fingerprint()
        named["clip.x" if path == mmproj else "qwen2vl.x"] = 1
        assert renamed.fingerprint() != header.fingerprint()


def test_a_part_of_the_built_in_model_is_found_again(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("a red square", encoding="utf-8")
    with Index.open(tmp_path / "index", create=True, model=demo.paths()[0]) as index:
        index.add(notes)
        wanted = index.search("red")
    with Index.open(tmp_path / "index") as index:
        assert index.embedder.info["mmproj"] is None
        assert index.search("red") == wanted


def test_a_model_that_has_moved_is_asked_for(tmp_path: Path, tiny_files: Files) -> None:
    model, mmproj = (
        Path(shutil.copy(path, tmp_path / path.name)) for path in tiny_files("qwen25_small")
    )
    with Index.open(tmp_path / "index", create=True, model=model, mmproj=mmproj):
        pass
    there = tmp_path / "there"
    there.mkdir()
    for path in (model, mmproj):
        path.rename(there / path.name)
    with pytest.raises(ModelLoadError, match="if they lie elsewhere now, pass model=") as caught:
        Index.open(tmp_path / "index")
    assert str(mmproj) in str(caught.value)
    with Index.open(tmp_path / "index", model=there / model.name, mmproj=there / mmproj.name):
        pass
    with pytest.raises(ModelLoadError, match="there is no such file") as caught:
        Index.open(tmp_path / "index", model=tmp_path / "none.gguf")
    assert "lie elsewhere" not in str(caught.value)


def test_a_query_runs_the_model_once(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    for name in ("encode_query", "encode_images"):
        method = getattr(Embedder, name)
        monkeypatch.setattr(Embedder, name, lambda *a, m=method, **k: calls.append(1) or m(*a, **k))
    with Index(tmp_path / "index", embedder) as index:
        for query in ("a", search.picture(0)):
            calls.clear()
            index.search(query)
            assert len(calls) == 1


def test_no_memory_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes the model, and every later call says that alone."""
    model = Embedder(n_threads=1)

    def fails(*_: object) -> None:
        model.close()
        raise OutOfMemoryError("no memory", index=3)

    monkeypatch.setattr(encode_module, "_together", fails)
    with pytest.raises(OutOfMemoryError, match=r"^no memory$"):
        encode_module.encode(model, ["a", "b"])


# --- an index as a value ---


def test_an_index_without_pages_is_one(tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        assert len(index) == 0
        assert index
        with pytest.raises(InputError, match="show_progress is 3"):
            index.add([], show_progress=3)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"^the text is empty"):
            index.search("")


def test_unknown_arguments_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="n_contexts"):
        Index.open(tmp_path / "index", create=True, n_contexts=3)  # type: ignore[call-arg]


def test_which_files_are_in(tmp_path: Path, embedder: Embedder) -> None:
    real = search.save_picture(tmp_path / "real.png", 0)
    copy = tmp_path / "copy.png"
    shutil.copy(real, copy)
    (tmp_path / "files").mkdir()
    link = tmp_path / "files" / "link.png"
    link.symlink_to(real)
    with Index(tmp_path / "index", embedder) as index:
        index.add(tmp_path / "files")
        assert link in index
        assert real in index
        assert copy not in index
        assert tmp_path / "none.png" not in index
        search.save_picture(real, 1)
        assert link in index


@pytest.mark.parametrize("paths", ["", ["a", ""], "a\0b", Path("a\0b")])
def test_no_paths(paths: object, tmp_path: Path, embedder: Embedder) -> None:
    with (
        Index(tmp_path / "index", embedder) as index,
        pytest.raises(InputError, match="is no path"),
    ):
        index.add(paths)  # type: ignore[arg-type]


# --- links and copies ---


def test_the_real_path_comes_first(tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / "files"
    (folder / "real").mkdir(parents=True)
    (folder / "a-link").symlink_to(folder / "real")
    (folder / "real" / "b.txt").write_text("a", encoding="utf-8")
    (folder / "a.txt").symlink_to(folder / "real" / "b.txt")
    with Index(tmp_path / "index", embedder) as index:
        assert index.add([folder / "a-link", folder]).n_files == 2
        (hit,) = index.search("a")
        assert hit.paths == (str(folder / "real" / "b.txt"), str(folder / "a.txt"))
        assert hit.path == hit.paths[0]
        assert index.paths_of(hit.content) == list(hit.paths)


def test_what_is_passed_over_is_counted(tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a.txt", "b.docx", "c.DOCX", "noext", ".hidden", "d.exe"):
        (folder / name).write_text("a", encoding="utf-8")
    with Index(tmp_path / "index", embedder) as index:
        report = index.add([folder, folder / "d.exe"])
        assert report.passed_over == {"": 1, ".docx": 2}
        assert list(report.failed) == [str(folder / "d.exe")]


def test_a_copy_stands_in_for_a_file_that_changes(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name: tmp_path / f"{name}.png" for name in ("changed", "deleted", "kept")}
    for path in names.values():
        search.save_picture(path, 0)
    pages_of = adding._pages

    def meanwhile(*words: object) -> object:
        names["deleted"].unlink()
        search.save_picture(names["changed"], 1)
        return pages_of(*words)

    monkeypatch.setattr(adding, "_pages", meanwhile)
    with Index(tmp_path / "index", embedder) as index:
        report = index.add(names.values())
        assert (report.n_files, report.n_pages) == (1, 1)
        assert report.failed == {
            str(names["changed"]): "was written to while it was being indexed; index it again",
            str(names["deleted"]): "was deleted while it was being indexed",
        }
        (hit,) = index.search(search.picture(0))
        assert hit.cosine == pytest.approx(1, abs=1e-4)
        assert str(names["kept"]) in hit.paths


def test_a_file_is_mended_by_its_copy(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search.save_pdf(tmp_path / "a.pdf", [0, 1])
    second = tmp_path / "b.pdf"
    shutil.copy(first, second)
    with Index(tmp_path / "index", embedder) as index:
        with monkeypatch.context() as patch:
            rendered = page._rendered
            patch.setattr(
                page,
                "_rendered",
                lambda document, number, settings: (
                    InputError("no") if number else rendered(document, number, settings)
                ),
            )
            assert list(index.add(first).failed) == [str(first)]
        assert index.add(second).failed == {}
        assert search.states_in(tmp_path / "index") == {"a.pdf": "failed", "b.pdf": "done"}
        assert index.add(first).failed == {}
        assert search.states_in(tmp_path / "index") == {"a.pdf": "done", "b.pdf": "done"}


def test_a_source_is_a_file_that_has_the_content_now(tmp_path: Path) -> None:
    first, second, pipe = (tmp_path / f"{name}.png" for name in "abc")
    for path in (first, second):
        search.save_picture(path, 0)
    os.mkfifo(pipe)
    content = page.content_of(str(first), "picture")
    sources = Sources()
    paths = [str(tmp_path / "none.png"), str(pipe), str(first), str(second)]
    assert sources.find(content, paths)[0] == str(first)
    before = first.stat()
    search.save_picture(first, 1)
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sources.find(content, paths)[0] == str(second)
    second.unlink()
    with pytest.raises(MissingPageError, match="the file is gone"):
        sources.find(content, paths)
    with pytest.raises(MissingPageError, match="has changed since it was indexed; `jmm index`"):
        sources.find(content, paths[:3])
    for name in ("../../etc/passwd", "picture-0", "exe-" + "0" * 32, ""):
        with pytest.raises(MissingPageError, match="there is no such page"):
            sources.find(name, paths)


# --- texts and pipes ---


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Zürich 大", encoding=encoding)
    ((_, passage),) = page.read(str(path), "text", [0], page.Settings(99, 99))
    assert passage.text == "Zürich 大"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"caf\xe9", "is no UTF-8: byte 3 is 0xe9; save it as UTF-8, or as UTF-16 or UTF-32"),
        ("a text".encode("utf-16-le"), "has NUL characters; save it as"),
        (b"\xff\xfe\0", "is no UTF-16: byte 2 is 0x00; save it"),
        (b"x" * 65, "is larger than 6.10352e-05 MiB; split it"),
    ],
)
def test_texts_that_are_none(
    data: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_TEXT_BYTES", 64)
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        page.count(str(path), "text", page.Settings(99, 99))
    assert str(caught.value).startswith(f"the text {why}")


def test_no_memory_for_a_file_fails_it_alone(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name, encoding="utf-8")
    split = page.split

    def greedy(text: str, n_bytes: int) -> object:
        if text == "a":
            raise MemoryError
        return split(text, n_bytes)

    monkeypatch.setattr(page, "split", greedy)
    with Index(tmp_path / "index", embedder) as index:
        report = index.add([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert report.failed == {str(tmp_path / "a.txt"): "there is no memory to read it"}
    assert report.n_files == 1


@pytest.mark.parametrize("kind", ["text", "pdf", "picture"])
def test_a_pipe_in_place_of_a_file(kind: Kind, tmp_path: Path) -> None:
    """Opening it as a file would wait for ever."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    calls: list[Callable[[], object]] = [
        lambda: page.content_of(path, kind),
        lambda: page.Stamp.of(path),
    ]
    if kind != "picture":
        calls.append(lambda: page.count(path, kind, page.Settings(99, 99)))
    for call in calls:
        with pytest.raises(OSError, match="no regular file"):
            call()


def test_a_pdf_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pypdfium2

    path = search.save_pdf(tmp_path / "a.pdf", [0])

    def fails(*_: object) -> None:
        raise pypdfium2.PdfiumError("no", err_code=pypdfium2.raw.FPDF_ERR_PASSWORD)

    monkeypatch.setattr(pypdfium2, "PdfDocument", fails)
    with pytest.raises(InputError, match=r"^the PDF has a password; save it without$"):
        page.count(str(path), "pdf", page.Settings(99, 99))


# --- the sheet ---


def pixels(sheet: Image.Image) -> np.ndarray:
    return np.asarray(sheet)


def test_the_sheet_shows_what_was_indexed(tmp_path: Path, embedder: Embedder) -> None:
    first, second = (search.save_picture(tmp_path / f"{name}.png", 0) for name in "ab")
    with Index(tmp_path / "index", embedder) as index:
        index.add([first, second])
        hits = index.search("a")
        whole = pixels(contact_sheet("a", hits, index.settings))
        search.save_picture(first, 1)
        np.testing.assert_array_equal(pixels(contact_sheet("a", hits, index.settings)), whole)
        search.save_picture(second, 1)
        changed = pixels(contact_sheet("a", hits, index.settings))
        first.unlink()
        second.unlink()
        gone = pixels(contact_sheet("a", hits, index.settings))
    inside = np.s_[150:300, 100:200]
    picture = np.unique(whole[inside].reshape(-1, 3), axis=0)
    for without in (changed, gone):
        assert len(np.unique(without[inside].reshape(-1, 3), axis=0)) < len(picture) / 2
    assert (changed != gone).any()


def test_a_white_page_has_a_frame(tmp_path: Path, embedder: Embedder) -> None:
    path = tmp_path / "white.png"
    Image.new("RGB", (56, 56), "white").save(path)
    with Index(tmp_path / "index", embedder) as index:
        index.add(path)
        sheet = pixels(contact_sheet("a", index.search("a"), index.settings))
    frame = np.argwhere((sheet == (176, 176, 176)).all(axis=2))
    assert len(frame) >= 4 * 55


@pytest.mark.parametrize(
    "text", ["W" * 3000, "ill ill " * 400, "WWWW iiii " * 300, "é大 " * 500, "", "\n\na\n"]
)
def test_a_text_stays_in_its_cell(text: str) -> None:
    hit = Hit("a.txt", ("a.txt",), 1, "text", 0.5, 0.5, text)
    with_text, without = (
        pixels(contact_sheet("a", hits, page.Settings(99, 99)))
        for hits in ([hit], [replace(hit, text="")])
    )
    changed = np.argwhere((with_text != without).any(axis=2))
    assert (len(changed) > 0) is bool(text)
    if text:
        assert changed[:, 1].max() < 16 + 260 - 8
        assert changed[:, 0].max() < 76 + 300
    if len(text) > 1000:
        assert changed[:, 1].max() > 16 + 260 - 80
