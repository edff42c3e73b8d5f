"""The page's server over an index of the built-in model, and ``jmm browse``."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, inspect, maxsim
from jmm.browse import BusyError, Library, MissingPageError, Server
from jmm.browse import library as library_module
from jmm.browse.turns import AbandonedError, Turns
from jmm.cli import browse, main
from jmm.cli.options import BUILT_IN
from jmm.search import Index
from support import search
from support.browse import JSON, TIMEOUT_S, ask, serving, text

pytest.importorskip("lancedb", reason="needs pip install 'jmm[search]'")
pdfium = pytest.importorskip("pypdfium2", reason="needs pip install 'jmm[search]'")

Capture = pytest.CaptureFixture[str]

QUERY = "rain at night"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    path = search.write_projector(tmp_path_factory.mktemp("projector") / "projector.gguf")
    with Embedder(projector=path, n_threads=1) as loaded:
        yield loaded


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    search.save_picture(folder / "a.png", 0)
    search.picture(1).resize((1000, 400)).save(folder / "wide.png")
    search.save_pdf(folder / "b.pdf", [2, 3])
    (folder / "c.txt").write_text("Rain all night.", encoding="utf-8")
    return folder


@pytest.fixture
def index(files: Path, tmp_path: Path, embedder: Embedder) -> Iterator[Index]:
    with Index(tmp_path / "index", embedder) as made:
        made.add(files)
        yield made


@pytest.fixture
def library(index: Index) -> Iterator[Library]:
    with Library(index) as made:
        yield made


def found(library: Library, name: str, page: int = 1) -> dict[str, Any]:
    hits = [hit for hit in library.search(QUERY) if (hit["name"], hit["page"]) == (name, page)]
    assert len(hits) == 1
    return hits[0]


def opened(jpeg: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(jpeg))
    assert (picture.format, picture.mode) == ("JPEG", "RGB")
    return picture


def distance(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of two pictures that are alike but for their sizes and JPEG."""
    small = [np.asarray(each.convert("RGB").resize((8, 8)), np.float64) for each in (one, other)]
    return float(np.abs(small[0] - small[1]).mean())


# --- what is answered ---


def test_about(library: Library) -> None:
    assert library.about() == {
        "folder": "index",
        "pages": 5,
        "heat_maps": True,
        "pictures": True,
    }


def test_pages_that_are_added_meanwhile(library: Library, files: Path, index: Index) -> None:
    (files / "d.txt").write_text("Sun.", encoding="utf-8")
    with Index(index.folder, index.embedder) as other:
        other.add(files)
    assert library.about()["pages"] == 6
    assert "d.txt" in {hit["name"] for hit in library.search(QUERY)}


@pytest.mark.parametrize("by", ["text", "picture"])
def test_search_is_that_of_the_index(by: str, library: Library, index: Index, files: Path) -> None:
    query = QUERY if by == "text" else (files / "a.png").read_bytes()
    hits = library.search(query)
    rows = index.search(query, top=50)
    assert len(hits) == len(rows) == 5
    for hit, row in zip(hits, rows, strict=True):
        assert (hit["path"], hit["page"], hit["kind"]) == (row.path, row.page, row.kind)
        assert (hit["score"], hit["cosine"], hit["text"]) == (row.score, row.cosine, row.text)
        assert hit["name"] == os.path.basename(row.path)
        assert hit["problem"] is None
    assert json.loads(json.dumps(hits)) == hits
    if by == "picture":
        assert hits[0]["name"] == "a.png"


def test_recent(library: Library, files: Path, index: Index) -> None:
    order = ["b.pdf", "c.txt", "wide.png", "a.png"]
    for age, name in enumerate(order):
        os.utime(files / name, (1_700_000_000 - age,) * 2)
    (files / "copy.png").write_bytes((files / "a.png").read_bytes())
    os.utime(files / "copy.png", (1_800_000_000,) * 2)
    index.add(files)
    (files / "later.txt").write_text("not in the index", encoding="utf-8")
    hits = library.recent()
    assert [hit["name"] for hit in hits] == ["copy.png", *order[:3]]
    assert hits[0]["paths"] == [str(files / "copy.png"), str(files / "a.png")]
    right = {(hit["content"], hit["page"]): hit for hit in library.search(QUERY)}
    for hit in hits:
        assert (hit["score"], hit["cosine"], hit["page"], hit["problem"]) == (None, None, 1, None)
        same = right[hit["content"], 1]
        assert {key: hit[key] for key in ("kind", "text", "start")} == {
            key: same[key] for key in ("kind", "text", "start")
        }
        assert hit.keys() == same.keys()
    assert json.loads(json.dumps(hits)) == hits
    (files / "b.pdf").unlink()
    (files / "c.txt").write_text("other", encoding="utf-8")
    changed = {hit["name"]: hit for hit in library.recent()}
    assert "has changed since it was indexed" in changed["c.txt"]["problem"]
    assert changed["c.txt"]["text"] == ""
    assert list(changed)[-1] == "b.pdf", "a file that is gone comes last"
    with Library(index, top=2) as small:
        assert len(small.recent()) == 2


def test_top(index: Index) -> None:
    with Library(index, top=2) as library:
        assert len(library.search(QUERY)) == 2
    with pytest.raises(InputError, match="top is 0"):
        Library(index, top=0)


def test_pictures(library: Library, files: Path) -> None:
    for name, page in (("a.png", 1), ("wide.png", 1), ("b.pdf", 1), ("b.pdf", 2)):
        hit = found(library, name, page)
        shown = opened(library.picture(hit["content"], page, 480))
        if name == "b.pdf":
            with pdfium.PdfDocument(files / name) as document:
                right = document[page - 1].render(scale=150 / 72).to_pil()
        else:
            right = Image.open(files / name)
        assert shown.size == (480, 192) if name == "wide.png" else right.size
        assert distance(shown, right) < 3
        others = [Image.open(files / other) for other in ("a.png", "wide.png") if other != name]
        assert all(distance(shown, other) > 10 for other in others)


def test_a_page_of_a_pdf_is_rendered_no_larger_than_needed(
    library: Library, files: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Image.new("RGB", (1240, 1754), "teal")
    page.save(files / "large.pdf", resolution=150)
    index.add(files)
    hit = found(library, "large.pdf")
    rendered = []
    to_rgb = library_module.to_rgb
    monkeypatch.setattr(
        library_module, "to_rgb", lambda source: rendered.append(source.size) or to_rgb(source)
    )
    assert max(opened(library.picture(hit["content"], 1, 100)).size) == 100
    assert max(opened(library.picture(hit["content"], 1, 1600)).size) == 1600
    assert rendered[0][0] * rendered[0][1] <= 4 * 100**2 * 1.05
    assert abs(rendered[1][1] - 1754) <= 2


def test_heat_maps_are_those_of_inspect(
    library: Library, files: Path, embedder: Embedder, index: Index
) -> None:
    hit = found(library, "wide.png")
    right = inspect.heatmap(embedder, files / "wide.png", QUERY)
    heat = library.heat(hit["content"], 1, QUERY)
    assert heat == right.record()
    assert QUERY.startswith(json.loads(json.dumps(heat))["tokens"][0]["text"])
    for page in (1, 2):
        hit = found(library, "b.pdf", page)
        heat = library.heat(hit["content"], page, QUERY)
        assert heat["score"] == pytest.approx(hit["score"], abs=1e-4)
        assert np.sum(heat["contributions"]) + heat["outside"] == pytest.approx(heat["score"])


def test_a_heat_map_of_a_picture(library: Library, files: Path, embedder: Embedder) -> None:
    asked = (files / "a.png").read_bytes()
    hit = found(library, "wide.png")
    heat = library.heat(hit["content"], 1, asked)
    tokens = [embedder.encode_images(each, multi_vector=True) for each in (asked, hit["path"])]
    assert heat["score"] == pytest.approx(float(maxsim(tokens[:1], tokens[1:])[0, 0]), abs=1e-4)
    assert np.shape(heat["contributions"]) == tuple(heat["grid"])
    assert len(heat["tokens"]) == len(tokens[0])


def test_a_model_without_token_vectors(
    files: Path, tmp_path: Path, tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    with (
        Embedder(*tiny_files("qwen25_small"), n_threads=1) as plain,
        Index(tmp_path / "index", plain) as index,
        Library(index) as library,
    ):
        index.add(files)
        assert library.about()["heat_maps"] is False
        hit = found(library, "a.png")
        assert hit["score"] == hit["cosine"]
        with pytest.raises(InputError, match="no token vectors"):
            library.heat(hit["content"], 1, QUERY)


def test_a_model_without_a_tower(
    files: Path, tmp_path: Path, tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    model, _ = tiny_files("qwen25_small")
    with (
        Embedder(model, n_threads=1) as blind,
        Index(tmp_path / "index", blind) as index,
        Library(index) as library,
    ):
        index.add(files)
        assert library.about() == {
            "folder": "index",
            "pages": 1,
            "heat_maps": False,
            "pictures": False,
        }
        with pytest.raises(InputError):
            library.search((files / "a.png").read_bytes())


# --- files that are not as they were ---


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "changed":
        path.write_bytes(data + b" ")
    elif how == "broken":
        path.write_bytes(data[: len(data) // 2])
    elif how == "same size":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)


@pytest.mark.parametrize("before", [False, True], ids=["unseen", "seen before"])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("gone", "the file is gone"),
        ("folder", "the file is gone"),
        ("pipe", "the file is gone"),
        ("changed", "the file has changed since it was indexed"),
        ("broken", "the file has changed since it was indexed"),
        ("same size", "the file has changed since it was indexed"),
    ],
)
def test_files_that_are_not_as_they_were(
    how: str, why: str, before: bool, library: Library, files: Path
) -> None:
    names = ("a.png", "b.pdf", "c.txt")
    hits = [found(library, name) for name in names]
    if before:
        for hit in hits[:2]:
            library.picture(hit["content"], 1, 480)
    for name in names:
        spoil(files / name, how)
    for hit in hits[:2]:
        with pytest.raises(MissingPageError, match=why):
            library.picture(hit["content"], 1, 480)
        with pytest.raises(MissingPageError, match=why):
            library.heat(hit["content"], 1, QUERY)
    assert why in found(library, "c.txt")["problem"]
    assert found(library, "a.png")["problem"] is None, "its picture tells"


def test_a_copy_stands_in(library: Library, files: Path, index: Index) -> None:
    (files / "copy.png").write_bytes((files / "a.png").read_bytes())
    index.add(files)
    hit = found(library, "a.png")
    assert hit["paths"] == [str(files / "a.png"), str(files / "copy.png")]
    (files / "a.png").write_bytes(b"something else")
    assert opened(library.picture(hit["content"], 1, 480)).size == (56, 56)


def test_a_file_that_is_written_to_while_it_is_read(
    library: Library, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = found(library, "a.png")
    read = library_module._read

    def late(path: str, *words: Any) -> Any:
        search.save_picture(Path(path), 7).touch()
        os.utime(path, ns=(1, 1))
        return read(path, *words)

    monkeypatch.setattr(library_module, "_read", late)
    with pytest.raises(MissingPageError, match="being written to"):
        library.picture(hit["content"], 1, 480)
    # a heat map reads the file as a whole before it looks
    search.save_picture(files / "a.png", 0)
    monkeypatch.setattr(library_module, "heatmap", lambda *_: pytest.fail("of another file"))
    with pytest.raises(MissingPageError, match="being written to"):
        library.heat(hit["content"], 1, QUERY)


def test_one_picture_at_a_time_is_large(
    library: Library, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = found(library, "wide.png")
    held = []
    thumbnail = Image.Image.thumbnail

    def watched(self: Image.Image, *words: Any) -> None:
        held.append((self.size, library._picture_lock.locked()))
        thumbnail(self, *words)

    monkeypatch.setattr(Image.Image, "thumbnail", watched)
    library.picture(hit["content"], 1, 480)
    assert held == [((1000, 400), True)]


def test_what_is_asked_is_read_in_a_place_of_the_queue(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = found(library, "a.png")
    monkeypatch.setattr(library, "_turns", Turns(1))
    calls: list[Callable[[Any], Any]] = [
        library.search,
        lambda asked: library.heat(hit["content"], 1, asked),
    ]
    for call in calls:

        def asked(call: Callable[[Any], Any] = call) -> str:
            with pytest.raises(BusyError):
                call(lambda: pytest.fail("there is no place for it"))
            return QUERY

        call(asked)


def test_hits_are_told_without_a_query_each(
    library: Library, files: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (files / f"{number}.txt").write_text(f"Rain {number}.", encoding="utf-8")
    index.add(files)
    monkeypatch.setattr(library._store, "paths_of", lambda *_: pytest.fail("asked again"))
    assert sum(hit["kind"] == "text" for hit in library.search(QUERY)) == 6


def test_another_file_of_the_same_size_and_time(library: Library, files: Path) -> None:
    hit = found(library, "a.png")
    library.picture(hit["content"], 1, 480)
    status = (files / "a.png").stat()
    data = (files / "a.png").read_bytes()
    (files / "a.png").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(files / "a.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(MissingPageError, match="has changed since it was indexed"):
        library.picture(hit["content"], 1, 480)


def test_only_what_is_in_the_index(library: Library, files: Path, index: Index) -> None:
    hits = {name: found(library, name) for name in ("a.png", "b.pdf", "c.txt")}
    for content in ("", "a.png", "picture-0", "x' OR '1'='1", str(files / "a.png")):
        with pytest.raises(MissingPageError, match="no such page"):
            library.picture(content, 1, 480)
        with pytest.raises(InputError, match="names no content"):
            index.paths_of(content)
    with pytest.raises(MissingPageError, match="not in the index any more"):
        library.picture("picture-" + "0" * 32, 1, 480)
    # a page's number
    for name, number in (("a.png", 2), ("a.png", 0), ("b.pdf", 0), ("c.txt", 1), ("c.txt", 2)):
        with pytest.raises(MissingPageError):
            library.picture(hits[name]["content"], number, 480)
    with pytest.raises(MissingPageError, match="has no page 3"):
        library.picture(hits["b.pdf"]["content"], 3, 480)
    # a file that the index has forgotten, though it is there
    kept = (files / "a.png").read_bytes()
    (files / "a.png").unlink()
    index.add(files)
    (files / "a.png").write_bytes(kept)
    with pytest.raises(MissingPageError, match="not in the index any more"):
        library.picture(hits["a.png"]["content"], 1, 480)


def test_a_name_of_any_bytes(library: Library, files: Path, index: Index) -> None:
    name = os.fsencode(files) + b"/\xff\xfe.png"
    try:
        Path(os.fsdecode(name)).write_bytes((files / "wide.png").read_bytes() + b" ")
    except OSError:
        pytest.skip("this file system takes no such name")
    index.add(files)
    hit = found(library, "??.png")
    assert json.dumps(hit).isascii()
    assert json.dumps(hit, ensure_ascii=False).encode()
    assert opened(library.picture(hit["content"], 1, 480)).size == (480, 192)


# --- many at once ---


def test_many_threads(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    right = library.search(QUERY)
    pages = [(hit["content"], hit["page"]) for hit in right if hit["kind"] != "text"]
    pictures = {page: library.picture(*page, 100) for page in pages}
    heats = {page: library.heat(*page, QUERY) for page in pages}
    with ThreadPoolExecutor(8) as pool:
        jobs: list[tuple[Any, Any]] = []
        for _ in range(6):
            jobs += [(pool.submit(library.picture, *page, 100), pictures[page]) for page in pages]
        for page in pages[:3]:
            jobs.append((pool.submit(library.heat, *page, QUERY), heats[page]))
            jobs.append((pool.submit(library.search, QUERY), right))
        for job, wanted in jobs:
            assert job.result(TIMEOUT_S) == wanted


def test_the_queue_is_limited(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    hit = found(library, "a.png")
    begun, go_on = threading.Semaphore(0), threading.Event()

    def is_wanted() -> bool:
        begun.release()
        return go_on.wait(TIMEOUT_S)

    with ThreadPoolExecutor(library_module.MOST_WAITING) as pool:
        jobs = [pool.submit(library.search, QUERY, is_wanted)]
        assert begun.acquire(timeout=TIMEOUT_S)
        rest = library_module.MOST_WAITING - 1
        jobs += [pool.submit(library.search, QUERY, is_wanted) for _ in range(rest)]
        while True:  # until all of them wait
            try:
                library.search(QUERY, lambda: False)
            except BusyError:
                break
            except AbandonedError:
                pytest.fail("it was not its turn")
        with pytest.raises(BusyError, match="too many"):
            library.heat(hit["content"], 1, QUERY)
        assert library.picture(hit["content"], 1, 100), "pictures wait for no model"
        go_on.set()
        assert [len(job.result(TIMEOUT_S)) for job in jobs] == [5] * len(jobs)


def test_what_nobody_waits_for_is_not_computed(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = found(library, "a.png")
    monkeypatch.setattr(Embedder, "encode_query", lambda *_, **__: pytest.fail("computed"))
    monkeypatch.setattr(library_module, "heatmap", lambda *_, **__: pytest.fail("computed"))
    for call in (
        lambda: library.search(QUERY, lambda: False),
        lambda: library.heat(hit["content"], 1, QUERY, lambda: False),
    ):
        with pytest.raises(AbandonedError):
            call()


def test_bad_queries(library: Library) -> None:
    for query in ("", b"", b"no picture", "x" * 100_000):
        with pytest.raises(InputError):
            library.search(query)


# --- over HTTP ---


def test_from_the_query_to_the_heat_map(library: Library, files: Path) -> None:
    picture = (files / "a.png").read_bytes()
    with serving(library) as server:
        for body, headers in ((text(QUERY), JSON), (picture, {"Content-Type": "image/png"})):
            hits = ask(server, "POST", "/search", body, headers).json()["hits"]
            assert len(hits) == 5
            for hit in hits:
                page = f"{hit['content']}/{hit['page']}"
                thumbnail = ask(server, "GET", f"/thumbnail/{page}")
                heat = ask(server, "POST", f"/heat/{page}", body, headers)
                if hit["kind"] == "text":
                    assert (thumbnail.status, heat.status) == (404, 404)
                else:
                    assert opened(thumbnail.body).size[0] in (56, 117, 480)
                    assert heat.json()["score"] == pytest.approx(hit["score"], abs=1e-3)
        assert ask(server, "POST", "/search", text("  "), JSON).status == 200
        for body, headers in ((text(""), JSON), (b"bad", {"Content-Type": "image/png"})):
            refused = ask(server, "POST", "/search", body, headers)
            assert refused.status == 400
            assert refused.json()["error"]
        assert ask(server, "POST", "/search", text("\N{PILE OF POO}\0\n"), JSON).status == 200


def test_an_index_that_was_removed(
    library: Library, index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    hit = found(library, "a.png")
    shutil.rmtree(index.folder)
    with serving(library) as server:
        page = f"{hit['content']}/1"
        for method, path, body in (
            ("GET", "/about", None),
            ("GET", "/recent", None),
            ("GET", f"/picture/{page}", None),
            ("POST", "/search", text(QUERY)),
            ("POST", f"/heat/{page}", text(QUERY)),
        ):
            answer = ask(server, method, path, body, JSON if body else None)
            assert answer.status == 500, path
            assert f"{index.folder}: the index cannot be used" in answer.json()["error"]
    assert caplog.records == [], "it is told, and no fault of ours"


def test_an_empty_index(tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index, Library(index) as library:
        assert library.about()["pages"] == 0
        assert library.search(QUERY) == []


# --- the command ---

SNIPPET = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits "ignore"
from jmm.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def command(index: Index) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        line = ["browse", str(index.folder), "--threads", "1", "--port", "0", *words]
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", SNIPPET, *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_ctrl_c_is_the_proper_end(
    command: Callable[..., subprocess.Popen[str]], index: Index
) -> None:
    process = command()
    assert process.stdout is not None
    line = process.stdout.readline()
    folder, url = index.folder, line.rsplit(" ", 1)[1].strip()
    assert line == f"5 pages of {folder} at {url}\n"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
        assert b"<!doctype html>" in page.read()
    assert ended(process) == (0, "", f"jmm: {BUILT_IN}\nCtrl-C ends it\n")


def test_ctrl_c_while_the_model_works(command: Callable[..., subprocess.Popen[str]]) -> None:
    process = command("--json")
    assert process.stdout is not None
    about = json.loads(process.stdout.readline())
    assert {name: about[name] for name in ("folder", "pages", "heat_maps", "pictures")} == {
        "folder": "index",
        "pages": 5,
        "heat_maps": True,
        "pictures": True,
    }
    begun = threading.Event()

    def keep_asking() -> None:
        request = urllib.request.Request(f"{about['url']}search", text("a" * 2000), JSON)
        try:
            while True:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    answer.read()
                begun.set()
        except OSError:
            pass

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(TIMEOUT_S)
    assert ended(process) == (0, "", f"jmm: {BUILT_IN}\n")
    for thread in threads:
        thread.join(TIMEOUT_S)


def test_quiet(command: Callable[..., subprocess.Popen[str]]) -> None:
    process = command("--quiet")
    assert process.stdout is not None
    with urllib.request.urlopen(process.stdout.readline().strip(), timeout=TIMEOUT_S) as page:
        assert page.status == 200
    assert ended(process) == (0, "", "")


def run(*words: object) -> int:
    return main(["browse", *map(str, words), "--threads", "1"])


@pytest.mark.parametrize("opens", [True, False])
def test_open(opens: bool, index: Index, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    tried: list[str] = []
    done = threading.Event()

    class Opener(threading.Thread):
        def run(self) -> None:
            super().run()
            done.set()

    def serve(server: Server) -> None:
        assert done.wait(TIMEOUT_S)
        assert tried == [server.url]
        raise KeyboardInterrupt

    monkeypatch.setattr(browse.threading, "Thread", Opener)
    monkeypatch.setattr(browse.webbrowser, "open", lambda url: tried.append(url) or opens)
    monkeypatch.setattr(Server, "serve_forever", serve)
    assert run(index.folder, "--port", 0, "--open", "--quiet") == 0
    out, err = capsys.readouterr()
    assert out == f"{tried[0]}\n"
    assert (f"no browser could be started; open {tried[0]}" in err) is not opens


def test_what_ctrl_c_waits_for_is_told(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def serve(server: Server) -> None:
        monkeypatch.setattr(Library, "is_working", is_working)
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", serve)
    for is_working in (False, True):
        assert run(index.folder, "--port", 0) == 0
        assert ("the last answer is being finished" in capsys.readouterr().err) == is_working


def test_it_does_not_start(index: Index, tmp_path: Path, capsys: Capture) -> None:
    assert run(tmp_path / "none") == 1
    assert "is no index; `jmm index" in capsys.readouterr().err
    with Library(index) as library, Server(library) as server:
        assert run(index.folder, "--port", server.port) == 1
    assert "cannot be had (Address already in use); 0 takes a free one" in capsys.readouterr().err
    for words in (
        *([], [index.folder, "query"], [index.folder, "--top", 0]),
        *([index.folder, "--port", word] for word in ("x", -1, 70_000)),
    ):
        with pytest.raises(SystemExit) as caught:
            run(*words)
        assert caught.value.code == 2
