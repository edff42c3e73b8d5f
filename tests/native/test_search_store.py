"""What an index does when its folder is damaged, full, or used by several at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError
from jmm.search import Index, StoreError, record
from jmm.search.store import PageKey, Store
from jmm.search.whole import to_the_end
from subprocess_case import run
from support import search

pytest.importorskip("lancedb", reason="needs pip install lancedb")


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as loaded:
        yield loaded


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"text {number}", encoding="utf-8")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path, embedder: Embedder) -> Path:
    with Index(tmp_path / "index", embedder) as index:
        index.add(files)
    return tmp_path / "index"


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def use(folder: Path, embedder: Embedder, files: Path) -> None:
    with Index(folder, embedder) as index:
        index.add(files)
        index.search("text")


@pytest.mark.parametrize(
    "part",
    [
        "index.json",
        "pages.lance",
        "files.lance",
        "pages.lance/_versions",
        "files.lance/_versions",
        "pages.lance/data",
        "files.lance/data",
    ],
)
def test_a_part_that_is_missing(part: str, files: Path, folder: Path, embedder: Embedder) -> None:
    remove(folder / part)
    with pytest.raises(StoreError, match="delete the folder, and index the files again") as caught:
        use(folder, embedder, files)
    assert str(caught.value).startswith(f"{folder}: the index ")
    assert "\n" not in str(caught.value)
    shutil.rmtree(folder)
    with Index(folder, embedder) as index:
        assert index.add(files).n_pages == 3


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 2}', '{"format": 2, "model": {}}', '{"format": 2, "model": 3}']
)
def test_a_record_that_is_damaged(text: str, folder: Path, embedder: Embedder) -> None:
    (folder / "index.json").write_text(text, encoding="utf-8")
    for opened in (lambda: Index(folder, embedder), lambda: Index.open(folder)):
        with pytest.raises(StoreError, match="the index is damaged"):
            opened()


def test_pages_that_are_missing_are_embedded_again(
    files: Path, folder: Path, embedder: Embedder
) -> None:
    with Index(folder, embedder) as index:
        (gone,) = index.search("text", top=1)
        index._store.drop_contents([gone.content])
        report = index.add(files)
        assert (report.n_pages, report.n_files, report.n_unchanged) == (1, 1, 2)
        assert len(index.search("text")) == 3


def test_pages_that_are_doubled_are_mended(files: Path, folder: Path, embedder: Embedder) -> None:
    with Index(folder, embedder) as index:
        before = index.search("text")
        doubled = [PageKey(hit.content, hit.page - 1) for hit in before[:2]]
        index._store.add_pages(index._store.pages(doubled))
        assert len(search.pages_in(folder)) == 5
        assert index.add(files).n_unchanged == 3
        assert len(search.pages_in(folder)) == 3
        assert index.search("text") == before


@pytest.mark.parametrize("delay", [0.0, 0.0003, 0.01, 0.02])
def test_what_interrupts_waits_for_the_end(delay: float) -> None:
    """LanceDB goes on with a write after an exception in the thread that asked for it."""
    begun: list[int] = []
    ended: list[int] = []

    def slow() -> None:
        begun.append(1)
        time.sleep(0.05)
        ended.append(1)

    timer = threading.Timer(delay, signal.raise_signal, (signal.SIGINT,))

    def again_and_again() -> None:
        timer.start()
        while True:
            to_the_end(slow)

    with pytest.raises(KeyboardInterrupt):
        again_and_again()
    timer.join()
    n_begun = len(begun)
    assert len(ended) == n_begun
    time.sleep(0.01)
    assert len(begun) == n_begun


def test_what_a_write_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        to_the_end(lambda: 1 // 0)


class Late:
    """A table that adds in a thread of its own, as LanceDB does, with Ctrl-C meanwhile."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.threads: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def add(self, data: Any) -> None:
        def late() -> None:
            time.sleep(0.2)
            self._table.add(data)

        thread = threading.Thread(target=late)
        self.threads.append(thread)
        thread.start()
        signal.raise_signal(signal.SIGINT)
        thread.join()


def test_ctrl_c_and_again_in_one_process(files: Path, tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        table = index._store._pages
        late = index._store._pages = Late(table)
        with pytest.raises(KeyboardInterrupt):
            index.add(files)
        index._store._pages = table
        report = index.add(files)
        for thread in late.threads:
            thread.join()
        assert (report.n_pages, len(index)) == (0, 3)


FULL = """
import resource
from jmm.search import Index, StoreError

folder, files = words
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Embedder(n_threads=1) as embedder, Index(folder, embedder) as index:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, -1))
    try:
        index.add(files)
    except StoreError as error:
        print(str(error).removeprefix(folder))
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    print(index.add(files).n_unchanged, len(index))
    print(index.add(files).n_unchanged, len(index))
"""


def test_a_full_disk(files: Path, tmp_path: Path) -> None:
    told, first, second = run(FULL, tmp_path / "index", files)
    assert told == ": the index cannot be used (File too large); what was finished is kept"
    assert (first, second) == ("0 3", "3 3")


def test_the_folder_goes_while_it_is_used(files: Path, folder: Path, embedder: Embedder) -> None:
    with Index(folder, embedder) as index:
        shutil.rmtree(folder)
        assert repr(index) == f"<Index {folder}>"
        for call in (lambda: index.search("text"), lambda: len(index), lambda: index.add(files)):
            with pytest.raises(StoreError, match="the index cannot be used"):
                call()


def test_an_index_of_another_version(folder: Path, embedder: Embedder) -> None:
    old = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**old, "format": 1}), encoding="utf-8")
    with pytest.raises(InputError, match="no index of this version of jmm; delete it"):
        Index(folder, embedder)


def test_making_one_is_ended_at_any_step(
    files: Path, tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(record, "write", kill)
        with pytest.raises(Killed):
            Index(tmp_path / "index", embedder)
    with pytest.raises(InputError, match="is no index"):
        Index.open(tmp_path / "index")
    with Index(tmp_path / "index", embedder) as index:
        assert index.add(files).n_pages == 3
    shutil.rmtree(tmp_path / "index" / "pages.lance")
    (tmp_path / "index" / "index.json").unlink()
    with pytest.raises(StoreError, match=r"there is no index\.json"):
        Index(tmp_path / "index", embedder)


def test_several_make_one_at_once(files: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "jmm", "index", files, "--into", tmp_path / "index"]
    processes = [
        subprocess.Popen([*words, "--threads", "1"], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=90)[1] for process in processes]
    for process, said in zip(processes, told, strict=True):
        assert process.returncode == 0 or "another process is writing" in said
        assert "Traceback" not in said
    assert 0 in [process.returncode for process in processes]
    assert len(search.pages_in(tmp_path / "index")) == 3


def test_ties_are_broken_by_key(tmp_path: Path, embedder: Embedder) -> None:
    """Equal pages are candidates in one order, whichever was written first."""
    with Index(tmp_path / "index", embedder) as index:
        store = index._store
        row = row_of(embedder, "0" * 32)
        names = [f"{digit}" * 32 for digit in "7a13fc05"]
        store.add_pages([row._replace(content=f"text-{name}") for name in names[:4]])
        store.add_pages([row._replace(content=f"text-{name}") for name in names[4:]])
        found = store.nearest(row.vector, 2)
    assert [key.content for key in found] == sorted(f"text-{name}" for name in names)


def row_of(embedder: Embedder, digest: str):  # type: ignore[no-untyped-def]
    from jmm.search.store import PageRow

    both = embedder.encode_document("a text", multi_vector="both")
    return PageRow(f"text-{digest}", 0, "a text", 0, both.pooled, both.tokens)


def test_no_row_is_lost_between_key_and_page(tmp_path: Path, embedder: Embedder) -> None:
    with Index(tmp_path / "index", embedder) as index:
        row = row_of(embedder, "0" * 32)
        rows = [row._replace(page=page, text=f"{page}") for page in range(700)]
        index._store.add_pages(rows)
        keys = [PageKey(row.content, page) for page in range(699, -1, -1)]
        found = index._store.pages([*keys, PageKey("text-none", 0)])
    assert [row.text for row in found] == [f"{page}" for page in range(699, -1, -1)]
    np.testing.assert_array_equal(found[5].tokens, row.tokens)


def test_another_writer_is_named(files: Path, folder: Path, embedder: Embedder) -> None:
    with (
        Index(folder, embedder) as index,
        record.locked(folder),
        pytest.raises(InputError, match=r"another process is writing into .*; wait"),
    ):
        index.add(files)


@pytest.mark.skipif(os.getuid() == 0, reason="permissions do not bind root")
def test_a_folder_that_cannot_be_written(files: Path, folder: Path, embedder: Embedder) -> None:
    folder.chmod(0o500)
    with Index(folder, embedder) as index:
        with pytest.raises(StoreError, match="Permission denied"):
            index.add(files)
        assert len(index.search("text")) == 3


def test_every_method_tells_in_one_way(folder: Path, embedder: Embedder) -> None:
    """A call that goes past `failure.told` would raise LanceDB's own errors."""
    calls: dict[str, Callable[[Store], object]] = {
        "files": lambda store: store.files(),
        "put_files": lambda store: store.put_files(store_rows),
        "drop_files": lambda store: store.drop_files(["a"]),
        "stored": lambda store: store.stored(),
        "drop_contents": lambda store: store.drop_contents(["text-0"]),
        "count_pages": lambda store: store.count_pages(),
        "nearest": lambda store: store.nearest(np.ones(embedder.dim, np.float32), 3),
        "pages": lambda store: store.pages([PageKey("text-0", 0)]),
        "paths_of": lambda store: store.paths_of(["text-0"]),
        "has_file": lambda store: store.has_file(["a"]),
        "refresh": lambda store: store.refresh(),
        "tidy": lambda store: store.tidy(),
    }
    with Index(folder, embedder) as index:
        store_rows = index._store.files()
        index._store._files = index._store._pages = Broken()
        for name, call in calls.items():
            with pytest.raises(StoreError, match="it broke"):
                call(index._store)
            assert name in vars(Store)
    besides = {"add_pages", "add_once", "writing"}  # made of the others, or as `put_files`
    public = {name for name in vars(Store) if not name.startswith("_")}
    assert public == calls.keys() | besides


class Broken:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError("it broke")
