"""An index of files: what is in it, what is found, and what a kill leaves."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import Embedder, InputError
from jmm.errors import MissingExtraError
from jmm.images import to_rgb
from jmm.search import Index, adding, contact_sheet, page, store
from jmm.search.encode import Encoded
from jmm.search.store import Store
from subprocess_case import run
from support import search

pytest.importorskip("lancedb", reason="needs pip install 'jmm[search]'")
pdfium = pytest.importorskip("pypdfium2", reason="needs pip install 'jmm[search]'")

Float32 = NDArray[np.float32]


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return search.write_projector(tmp_path_factory.mktemp("projector") / "projector.gguf")


@pytest.fixture(scope="module")
def embedder(projector: Path) -> Iterator[Embedder]:
    with Embedder(projector=projector, n_threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def pooled_only(tiny_files: Callable[..., tuple[Path, Path]]) -> Iterator[Embedder]:
    model, mmproj = tiny_files("qwen25_small")
    with Embedder(model, mmproj, n_threads=1) as loaded:
        assert loaded.multi_vector_dim is None
        yield loaded


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "deep" / "er").mkdir(parents=True)
    for seed in range(3):
        search.save_picture(folder / f"{seed}.png", seed)
    search.save_picture(folder / "deep" / "3.bmp", 3)
    search.save_pdf(folder / "deep" / "er" / "doc.PDF", [4, 5, 6])
    (folder / "notes.txt").write_text("Rain all night. " * 200, encoding="utf-8")
    (folder / "table.md").write_text("| a | b |", encoding="utf-8")
    (folder / "program.exe").write_bytes(b"no business of ours")
    (folder / ".hidden.txt").write_text("no business of ours", encoding="utf-8")
    return folder


N_FILES, N_PAGES = 7, 4 + 3 + 2 + 1


def documents(files: Path) -> list[tuple[str, int, object]]:
    """Name, page number and content of all pages, by means other than the index's."""
    found: list[tuple[str, int, object]] = []
    for name in ("0.png", "1.png", "2.png", "deep/3.bmp"):
        found.append((name, 1, files / name))
    with pdfium.PdfDocument(files / "deep/er/doc.PDF") as document:
        for number in range(len(document)):
            image = document[number].render(scale=150 / 72).to_pil().convert("RGB")
            found.append(("deep/er/doc.PDF", number + 1, image))
    text = (files / "notes.txt").read_text()
    half = text[:2000].rindex(". ") + 2
    found += [("notes.txt", 1, text[:half].strip()), ("notes.txt", 2, text[half:].strip())]
    found.append(("table.md", 1, "| a | b |"))
    return found


def maxsim(query: Float32, page: Float32) -> float:
    return float((query.astype(np.float64) @ page.T.astype(np.float64)).max(axis=1).sum())


@pytest.mark.parametrize("late", [True, False], ids=["maxsim", "dot"])
@pytest.mark.parametrize("by", ["text", "picture"])
def test_the_ranking_is_that_of_brute_force(
    late: bool, by: str, files: Path, tmp_path: Path, embedder: Embedder, pooled_only: Embedder
) -> None:
    model = embedder if late else pooled_only
    query = "rain at night" if by == "text" else files / "1.png"
    encode = model.encode_query if by == "text" else model.encode_images
    pages = documents(files)
    asked = encode(query)
    cosines = [float(model.encode_document(page) @ asked) for _, _, page in pages]
    scores = cosines
    if late:
        asked = encode(query, multi_vector=True)
        scores = [
            maxsim(asked, model.encode_document(page, multi_vector=True)) for _, _, page in pages
        ]
    with Index(tmp_path / "index", model) as index:
        report = index.add(files)
        assert (report.n_files, report.n_pages, report.failed) == (N_FILES, N_PAGES, {})
        assert len(index) == N_PAGES
        hits = index.search(query, top=100)
    found = {(os.path.relpath(hit.path, files), hit.page): hit for hit in hits}
    assert set(found) == {(name, number) for name, number, _ in pages}
    for (name, number, _), score, cosine in zip(pages, scores, cosines, strict=True):
        assert found[name, number].score == pytest.approx(score, abs=1e-4)
        assert found[name, number].cosine == pytest.approx(cosine, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    if by == "picture":
        assert os.path.basename(hits[0].path) == "1.png"


def test_candidates_come_from_the_pooled_vectors(
    files: Path, tmp_path: Path, embedder: Embedder
) -> None:
    pages = documents(files)
    asked = embedder.encode_query("rain")
    cosines = np.array([embedder.encode_document(page) @ asked for _, _, page in pages])
    nearest = {pages[i][:2] for i in np.argsort(-cosines)[:4]}
    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
        hits = index.search("rain", top=2, candidates=4)
        everyone = index.search("rain", top=100)
    names = [(os.path.relpath(hit.path, files), hit.page) for hit in hits]
    assert len(names) == 2
    assert set(names) <= nearest
    among = [(os.path.relpath(hit.path, files), hit.page) for hit in everyone]
    assert names == [name for name in among if name in nearest][:2]


def test_passages_are_told(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        index.add(files / "notes.txt")
        hits = index.search("rain", top=5)
    text = (files / "notes.txt").read_text()
    assert sorted(hit.page for hit in hits) == [1, 2]
    for hit in hits:
        assert hit.kind == "text"
        assert text[hit.start :].startswith(hit.text)


def test_nothing_twice(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / "index"
    with Index(folder, embedder) as index:
        index.add([files, files / "0.png"])
        before = search.pages_in(folder)
        again = index.add([files, str(files / "deep"), os.fsencode(files / "0.png")])
    assert (again.n_pages, again.n_files, again.n_unchanged) == (0, 0, N_FILES)
    assert search.pages_in(folder) == before
    assert max(Counter(before).values()) == 1
    assert set(search.states_in(folder).values()) == {"done"}


def test_changed_removed_renamed_and_copied_files(
    files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    embedded: list[object] = []
    encode = adding.encode
    monkeypatch.setattr(
        adding, "encode", lambda model, items: embedded.extend(items) or encode(model, items)
    )
    with Index(folder, embedder) as index:
        index.add(files)
        embedded.clear()
        (files / "1.png").unlink()
        (files / "2.png").rename(files / "deep" / "moved.png")
        (files / "copy.png").write_bytes((files / "0.png").read_bytes())
        (files / "table.md").write_text("| c | d |", encoding="utf-8")
        report = index.add(files)
        hits = index.search("rain", top=100)
    assert embedded == ["| c | d |"]
    assert (report.n_pages, report.n_files, report.n_renamed, report.n_removed) == (1, 2, 1, 1)
    assert report.n_unchanged == N_FILES - 3
    found = {tuple(map(os.path.basename, hit.paths)) for hit in hits}
    pictures = {("0.png", "copy.png"), ("3.bmp",), ("moved.png",)}
    assert found == pictures | {("doc.PDF",), ("notes.txt",), ("table.md",)}
    assert [hit.text for hit in hits if hit.path.endswith(".md")] == ["| c | d |"]
    assert len(search.pages_in(folder)) == N_PAGES - 1


def test_a_search_names_no_file_that_is_forgotten(
    files: Path, tmp_path: Path, embedder: Embedder
) -> None:
    """Between two commits of a run there may be pages that no file has."""
    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
        nearest = index.search("rain", top=4)
        index._store.drop_files([hit.path for hit in nearest])
        gone = {hit.path for hit in nearest}
        hits = index.search("rain", top=2, candidates=2)
    assert len(hits) == 2
    assert not gone & {hit.path for hit in hits}


def test_only_the_given_paths_are_brought_up_to_date(
    files: Path, tmp_path: Path, embedder: Embedder
) -> None:
    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
        for name in ("0.png", "deep/3.bmp", "table.md"):
            (files / name).unlink()
        assert index.add(files / "deep").n_removed == 1
        assert index.add(files / "0.png").n_removed == 1
        assert index.add(files / "0.png").failed.keys() == {str(files / "0.png")}
        assert "table.md" in search.states_in(tmp_path / "index")


def test_bad_files_are_reported_and_the_others_are_in(
    files: Path, tmp_path: Path, embedder: Embedder
) -> None:
    whole = (files / "deep/er/doc.PDF").read_bytes()
    bad = {
        "cut.png": (files / "0.png").read_bytes()[:60],
        "empty.jpg": b"",
        "cut.pdf": whole[:200],
        "latin.txt": "Zürich".encode("latin-1"),
        "text.png": b"a text",
    }
    for name, data in bad.items():
        (files / name).write_bytes(data)
    (files / "nowhere.png").symlink_to(files / "none.png")
    os.mkfifo(files / "pipe.txt")
    named = [files / "program.exe", tmp_path / "none"]
    with Index(tmp_path / "index", embedder) as index:
        report = index.add([files, *named])
        assert len(index) == N_PAGES
        failed = {os.path.basename(path): why for path, why in report.failed.items()}
        assert failed.keys() == {*bad, "nowhere.png", "pipe.txt", "program.exe", "none"}
        assert failed["latin.txt"].startswith("the text is no UTF-8: byte 1 is 0xfc; save it as")
        assert failed["nowhere.png"] == "is a link that leads nowhere"
        assert failed["pipe.txt"] == "is no regular file"
        assert failed["cut.pdf"] == (
            "this is no PDF, or a damaged one: Failed to load document (PDFium: Data format error)"
        )
        assert failed["program.exe"].startswith("neither picture, PDF nor text")
        assert not any(str(files) in why for why in failed.values())
        (files / "latin.txt").write_text("Zürich", encoding="utf-16")
        (files / "cut.png").write_bytes((files / "0.png").read_bytes())
        report = index.add(files)
        assert (report.n_files, report.n_pages) == (2, 1)
        assert report.n_unchanged == N_FILES
        assert "Zürich" in {hit.text for hit in index.search("a", top=100)}


def test_a_bad_page_does_not_take_the_others_with_it(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.save_pdf(tmp_path / "doc.pdf", [0, 1, 2])
    render = pdfium.PdfPage.render
    calls: list[int] = []

    def fails(page: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise pdfium.PdfiumError("no such colour")
        return render(page, **options)

    monkeypatch.setattr(pdfium.PdfPage, "render", fails)
    with Index(tmp_path / "index", embedder) as index:
        report = index.add(tmp_path / "doc.pdf")
        assert list(report.failed.values()) == [
            "page 2: the page cannot be rendered: no such colour"
        ]
        assert sorted(hit.page for hit in index.search("a")) == [1, 3]
        assert index.add(tmp_path / "doc.pdf").n_pages == 1
        assert sorted(hit.page for hit in index.search("a")) == [1, 2, 3]
    assert len(calls) == 4


def test_a_file_that_changes_meanwhile(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = search.save_picture(tmp_path / "a.png", 0)
    encode = adding.encode

    def meanwhile(model: Embedder, items: list[object]) -> list[object]:
        search.save_picture(path, 1)
        os.utime(path, ns=(1, 1))
        return encode(model, items)

    with Index(tmp_path / "index", embedder) as index:
        monkeypatch.setattr(adding, "encode", meanwhile)
        assert "written to" in index.add(path).failed[str(path)]
        assert len(index) == 0
        monkeypatch.setattr(adding, "encode", encode)
        assert index.add(path).failed == {}
        assert index.search(search.picture(1))[0].cosine == pytest.approx(1, abs=1e-4)


def test_odd_names(tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / 'a folder\'s "name"'
    folder.mkdir()
    names = [
        "Größe 大小 🌧.txt",
        "it's.txt",
        "new\nline.txt",
        os.fsdecode(b"\xff\xfe.txt"),
        "%_\\.txt",
    ]
    for number, name in enumerate(names):
        (folder / name).write_text(f"text {number}", encoding="utf-8")
    with Index(folder / "index", embedder) as index:
        assert index.add(folder).n_files == len(names)
        assert {hit.path for hit in index.search("text")} == {str(folder / name) for name in names}
        (folder / names[3]).unlink()
        (folder / names[1]).write_text("another", encoding="utf-8")
        report = index.add(folder)
        assert (report.n_removed, report.n_pages) == (1, 1)
        assert sorted(hit.text for hit in index.search("text")) == [
            "another",
            "text 0",
            "text 2",
            "text 4",
        ]


def test_links_that_loop(tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a", encoding="utf-8")
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "again").symlink_to(folder / "sub")
    (folder / "self").symlink_to(folder / "self")
    (folder / "b.txt").symlink_to(folder / "sub" / "a.txt")
    with Index(tmp_path / "index", embedder) as index:
        report = index.add([folder, folder / "sub" / "up"])
        hits = index.search("a")
    assert (report.n_files, report.n_pages, report.failed) == (2, 1, {})
    assert len(hits) == 1
    assert {os.path.basename(path) for path in hits[0].paths} == {"a.txt", "b.txt"}


def test_a_folder_that_cannot_be_read_keeps_its_files(
    files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir = os.listdir

    def forbidden(path: str) -> list[str]:
        if path == str(files / "deep"):
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
        monkeypatch.setattr(os, "listdir", forbidden)
        report = index.add(files)
        assert report.n_removed == 0
        assert report.failed == {str(files / "deep"): "cannot be opened (Permission denied)"}
        assert len(index.search("rain", top=100)) == N_PAGES


def test_an_empty_folder(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "empty.txt").write_text(" \n", encoding="utf-8")
    with Index(tmp_path / "index", embedder) as index:
        report = index.add(tmp_path / "files")
        assert (report.n_files, report.n_pages, report.failed) == (1, 0, {})
        assert index.search("anything") == []
        assert len(index) == 0
        assert index.add([]).n_files == 0


def test_another_model_is_refused(
    tmp_path: Path,
    embedder: Embedder,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    folder = tmp_path / "index"
    with Index(folder, embedder):
        pass
    with (
        Embedder() as without,
        pytest.raises(InputError, match=r"projector: projector\.gguf .* in the index, none here"),
    ):
        Index(folder, without)
    other = search.write_projector(tmp_path / "projector.gguf", seed=1)
    with (
        Embedder(projector=other) as changed,
        pytest.raises(InputError, match=r"projector: projector\.gguf"),
    ):
        Index(folder, changed)
    with (
        Embedder(projector=embedder.__reduce__()[1][0]["projector"], max_pixels=7000) as smaller,
        pytest.raises(InputError, match="max_pixels: 8000 in the index, 7000 here"),
    ):
        Index(folder, smaller)
    model, mmproj = tiny_files("qwen25_small")
    with (
        Embedder(model, mmproj) as stranger,
        pytest.raises(InputError, match=f"model: built-in .* in the index, {model.name}"),
    ):
        Index(folder, stranger)


def test_the_model_is_found_again(
    files: Path, tmp_path: Path, tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    model, mmproj = tiny_files("qwen25_small")
    folder = tmp_path / "index"
    with Index.open(folder, create=True, model=model, mmproj=mmproj, max_pixels=50176) as index:
        index.add(files)
        wanted = index.search("rain")
    with Index.open(folder, model=None) as index:
        assert index.search("rain") == wanted
        assert index.settings.max_pixels == 50176
        assert index.add(files).n_unchanged == N_FILES
    with pytest.raises(InputError, match="was made by another model"):
        Index.open(folder, max_pixels=100352)


def test_a_text_model_indexes_texts_alone(
    files: Path, tmp_path: Path, tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    model, _ = tiny_files("qwen25_small")
    with Embedder(model, n_threads=1) as texts, Index(tmp_path / "index", texts) as index:
        report = index.add([files, files / "0.png"])
        assert (report.n_files, report.n_pages) == (2, 3)
        assert report.failed == {
            str(files / "0.png"): "the model reads no pictures: it has no mmproj"
        }


def test_folders_that_are_no_index(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    with pytest.raises(InputError, match="holds other things"):
        Index(files, embedder)
    with pytest.raises(InputError, match="is no folder"):
        Index(files / "0.png", embedder)
    with pytest.raises(InputError, match="is no index"):
        Index.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "index.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(InputError, match="no index of this version"):
        Index(tmp_path / "odd", embedder)


def test_one_writer_at_a_time(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as one, Index(tmp_path / "index", embedder) as two:
        with one._store.writing(), pytest.raises(InputError, match="another process is writing"):
            two.add(files)
        one.add(files)
        assert len(two.search("rain", top=100)) == N_PAGES
        assert two.add(files).n_unchanged == N_FILES


def test_bad_arguments(tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        for arguments in ({"top": 0}, {"candidates": 0}, {"top": "3"}):
            with pytest.raises(InputError, match=next(iter(arguments))):
                index.search("a", **arguments)
        for query in (3, None, ["a"]):
            with pytest.raises(InputError, match="a query is a text or a picture"):
                index.search(query)
        with pytest.raises(InputError, match="the text is empty"):
            index.search("")
        with pytest.raises(InputError, match="paths is 3"):
            index.add(3)


@pytest.mark.parametrize("name", ["lancedb", "pypdfium2"])
def test_a_missing_package_is_named(
    name: str, files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    what = {"lancedb": "an index", "pypdfium2": "a PDF"}[name]
    with pytest.raises(MissingExtraError, match=f"^{what} needs {name}: pip install {name}$"):
        Index(tmp_path / "index", embedder).add(files)


def test_a_closed_model_fails_as_a_whole(files: Path, tmp_path: Path) -> None:
    model = Embedder(n_threads=1)
    with Index(tmp_path / "index", model) as index:
        model.close()
        with pytest.raises(InputError, match="closed"):
            index.add(files)
        assert len(index) == 0


def test_contact_sheet(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
        hits = index.search("rain", top=100)
        with_all = contact_sheet("rain", hits, index.settings)
        for path in files.rglob("*.*"):
            path.unlink()
        without = contact_sheet(search.picture(0), hits, index.settings)
        none = contact_sheet("rain", [], index.settings)
    assert with_all.mode == without.mode == none.mode == "RGB"
    colours = [
        len(np.unique(np.asarray(sheet).reshape(-1, 3), axis=0)) for sheet in (with_all, none)
    ]
    assert colours[0] > 10 * colours[1]
    assert with_all.height > 2 * none.height


def test_pages_are_rendered_at_150_dpi_and_no_larger_than_needed(tmp_path: Path) -> None:
    path = search.save_pdf(tmp_path / "doc.pdf", [0])
    assert page.picture(str(path), "pdf", 0, page.Settings(99, 602_112)).size == (117, 117)
    assert page.picture(str(path), "pdf", 0, page.Settings(99, 784)).size == (56, 56)


def test_small_commits_are_gathered(
    files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    monkeypatch.setattr(adding, "_CHUNK", 4)
    with Index(folder, embedder) as index:
        index.add(files)
        before = index.search("rain", top=100)
        before_gathering = search.fragments_in(folder)
        monkeypatch.setattr(store, "_MOST_FRAGMENTS", 1)
        assert index.add(files).n_unchanged == N_FILES
        assert index.search("rain", top=100) == before
    assert min(before_gathering) > 1
    assert search.fragments_in(folder) == [1, 1]


# --- interruptions ---


class Killed(BaseException):
    pass


WRITES = ("put_files", "drop_files", "add_pages", "drop_contents")


def expected(files: Path, folder: Path, embedder: Embedder) -> list[tuple[str, int]]:
    with Index(folder, embedder) as index:
        index.add(files)
    pages = search.pages_in(folder)
    assert len(pages) == N_PAGES
    return pages


def assert_alike(folder: Path, fresh: Path) -> None:
    """Each page of both has one text and, but for rounding, one vector."""
    pages, wanted = search.rows_in(folder), search.rows_in(fresh)
    for name in ("content", "page", "text", "start"):
        assert [row[name] for row in pages] == [row[name] for row in wanted]
    for row, other in zip(pages, wanted, strict=True):
        np.testing.assert_allclose(row["vector"], other["vector"], atol=1e-5)
        np.testing.assert_allclose(row["tokens"], other["tokens"], atol=1e-4)


def drawn(item: object) -> Encoded:
    """Vectors that differ from item to item, without a model."""
    data = item.encode() if isinstance(item, str) else to_rgb(item).tobytes()
    rng = np.random.default_rng(list(data[:64]))
    vector = rng.standard_normal(256, np.float32)
    return Encoded(vector, rng.standard_normal((len(data) % 5 + 1, search.TOKEN_DIM), np.float32))


def test_ended_before_or_after_every_commit(
    files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run makes the same index, and embeds what is missing alone."""
    monkeypatch.setattr(adding, "_CHUNK", 12)
    monkeypatch.setattr(adding, "encode", lambda _, items: list(map(drawn, items)))
    wanted = expected(files, tmp_path / "whole", embedder)
    (files / "gone.txt").write_text("gone", encoding="utf-8")
    left = 0

    def deadly(name: str) -> Callable[..., None]:
        method = getattr(Store, name)

        def wrapped(self: Store, *words: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            method(self, *words)
            left -= 1
            if left == 0:
                raise Killed

        return wrapped

    for name in WRITES:
        monkeypatch.setattr(Store, name, deadly(name))
    for moment in range(1, 100):
        folder = tmp_path / f"index-{moment}"
        gone = files / "gone.txt"
        gone.write_text("gone", encoding="utf-8")
        with Index(folder, embedder) as index:
            left = 0
            index.add(gone)
            gone.unlink()
            left = moment
            try:
                index.add(files)
                break
            except Killed:
                left = 0
            there = len([page for page in search.pages_in(folder) if page in wanted])
            assert index.add(files).n_pages == N_PAGES - there
            assert_alike(folder, tmp_path / "whole")
            assert set(search.states_in(folder).values()) == {"done"}
            assert "gone.txt" not in search.states_in(folder)
            assert len(index.search("rain", top=100)) == N_PAGES
    assert moment > 10


KILLED = """
import random
from jmm.search import Index, adding as module
from jmm.search.encode import Encoded
from jmm.search.store import Store

module._CHUNK = 8
folder, files, projector, seed = words
rng = random.Random(int(seed))
add_pages = Store.add_pages

def deadly(store, rows):
    if not armed:
        armed.append(True)
        threading.Timer(rng.uniform(0, 0.2), os.kill, (os.getpid(), signal.SIGKILL)).start()
    add_pages(store, rows)

armed = []
Store.add_pages = deadly
with Embedder(projector=projector, n_threads=1) as embedder, Index(folder, embedder) as index:
    index.add(files)
    time.sleep(60)
"""


def test_killed(files: Path, tmp_path: Path, embedder: Embedder, projector: Path) -> None:
    wanted = expected(files, tmp_path / "whole", embedder)
    folder = tmp_path / "index"
    n_before = 0
    for seed in range(2):
        if n_before < N_PAGES:
            run(KILLED, folder, files, projector, seed, exit_code=-9)
        pages = search.pages_in(folder)
        assert max(Counter(pages).values(), default=1) == 1
        assert set(pages) <= set(wanted)
        assert len(pages) >= n_before
        n_before = len(pages)
    with Index(folder, embedder) as index:
        assert index.add(files).n_pages == N_PAGES - n_before
        assert len(index.search("rain", top=100)) == N_PAGES
    assert_alike(folder, tmp_path / "whole")
    assert set(search.states_in(folder).values()) == {"done"}
