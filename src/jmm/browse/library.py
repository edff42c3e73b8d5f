"""An index as the page sees it: hits, pictures of pages, heat maps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jmm import arguments
from jmm.browse.turns import BusyError, Turns
from jmm.errors import InputError
from jmm.images import to_rgb
from jmm.inspect import heatmap
from jmm.search import Index, MissingPageError, Sources, page
from jmm.search.identity import Identity
from jmm.search.passages import Passage
from jmm.search.source import is_unchanged
from jmm.search.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

    from jmm.search.store import FileRow

Query: TypeAlias = "str | bytes"

TOP = 50
MOST_WAITING = 8

_JPEG_QUALITY = 85


def _always() -> bool:
    return True


class Library:
    """Answers about one index, from any thread.

    One request at a time uses the model, and `MOST_WAITING` may be there at once; pictures are
    decoded one at a time beside it. A page is named by the content of its file and its number, as
    in `jmm.search.Hit`: no path is taken from outside, and what is shown has the hash that was
    indexed.

    Args:
        index: Not closed with the library. Others must not use it meanwhile.
        top: Pages that a search gives.

    Raises:
        InputError: ``top`` is out of range.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from jmm import Embedder
        >>> with TemporaryDirectory() as folder, Embedder() as embedder:
        ...     notes = Path(folder, "notes.txt")
        ...     _ = notes.write_text("Rain fell on the harbour all night.")
        ...     with Index(Path(folder, "index"), embedder) as index:
        ...         _ = index.add(notes)
        ...         with Library(index) as library:
        ...             [hit] = library.search("weather")
        >>> hit["name"], hit["page"], hit["problem"]
        ('notes.txt', 1, None)
    """

    def __init__(self, index: Index, top: int = TOP) -> None:
        self._index = index
        self._top = arguments.whole("top", top, 1)
        self._turns = Turns(MOST_WAITING)
        # an Index is for one thread: files are looked up while another one searches
        self._store = Store(index.folder, Identity.of(index.embedder))
        self._files_lock = threading.Lock()
        self._is_closed = False
        self._picture_lock = threading.Lock()  # PDFium is for one thread, and memory is limited
        self._sources = Sources()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Begins nothing new, and waits for what the model and the database do at the moment.

        A thread of a server that is inside the database when Python ends would end the process.
        """
        self._turns.close()
        self._turns.wait()
        with self._files_lock:
            self._is_closed = True

    @property
    def is_working(self) -> bool:
        """Whether the model computes at the moment, which the end of the index waits for."""
        return self._turns.is_taken

    def about(self) -> dict[str, Any]:
        """What there is.

        Returns:
            ``folder``: its name; ``pages``: how many; ``heat_maps``: whether the model has token
            vectors; ``pictures``: whether it reads pictures.
        """
        with self._files():
            self._store.refresh()
            n_pages = self._store.count_pages()
        embedder = self._index.embedder
        return {
            "folder": _shown(self._index.folder.absolute().name),
            "pages": n_pages,
            "heat_maps": embedder.multi_vector_dim is not None,
            "pictures": embedder.info["mmproj"] is not None,
        }

    def recent(self) -> list[dict[str, Any]]:
        """The first pages of the files that were written to last, the last first.

        Returns:
            As of `search`, with None for ``score`` and ``cosine``.
        """
        with self._files():
            self._store.refresh()
            rows = self._store.files()
        paths: dict[str, list[str]] = {}
        for row in sorted(filter(_has_pages, rows), key=_last_written, reverse=True):
            paths.setdefault(row.content, []).append(row.path)
        return [self._first_page(content, paths[content]) for content in [*paths][: self._top]]

    def _first_page(self, content: str, paths: list[str]) -> dict[str, Any]:
        kind = page.kind_of(content)
        fields = {"path": paths[0], "paths": tuple(paths), "page": 1, "kind": kind}
        fields |= {"score": None, "cosine": None, "text": "", "start": 0, "content": content}
        told = self._told(fields)
        if kind == "text" and told["problem"] is None:
            try:
                path, _ = self._sources.find(content, paths)
                with closing(page.read(path, kind, [0], self._index.settings)) as pages:
                    _, found = next(pages, (0, None))
                if isinstance(found, Passage):
                    told |= {"text": found.text, "start": found.start}
            except (InputError, OSError):
                told["problem"] = "the file is being written to"
        return told

    def search(
        self, query: Query | Callable[[], Query], is_wanted: Callable[[], bool] = _always
    ) -> list[dict[str, Any]]:
        """Finds the pages that fit a query best.

        Args:
            query: A text, or the bytes of a picture's file; or what reads it, which is called
                once there is a place in the queue.
            is_wanted: Asked when the turn has come: whether the answer still matters.

        Returns:
            The fields of each `Hit`, best first, with ``name``, that of the file, and ``problem``,
            why a text's file can no longer be had, or None. A picture's is found by `picture`.

        Raises:
            InputError: The query is empty or no picture.
            BusyError: Too many wait.
            AbandonedError: The answer is not wanted any more.
        """
        with self._turns.place():
            asked = _asked(query)
            with self._turns.turn(is_wanted):
                hits = self._index.search(asked, top=self._top)
        return [self._told(asdict(hit)) for hit in hits]

    def picture(self, content: str, number: int, side: int) -> bytes:
        """A page as a JPEG file.

        Args:
            content: `Hit.content`.
            number: `Hit.page`.
            side: Most pixels of the longer side; no page is enlarged.

        Raises:
            MissingPageError: Its file is gone or has changed, or there is no such page.
            InputError: It cannot be decoded.
        """
        path, stamp = self._source(content)
        settings = self._index.settings
        # a PDF's page is rendered for the side that is wanted, with room to scale it down well
        settings = settings._replace(max_pixels=side**2)
        with self._picture_lock:
            picture = to_rgb(_read(path, content, number, settings))
            picture.thumbnail((side, side))
        _check(path, stamp)
        file = BytesIO()
        picture.save(file, "JPEG", quality=_JPEG_QUALITY)
        return file.getvalue()

    def heat(
        self,
        content: str,
        number: int,
        query: Query | Callable[[], Query],
        is_wanted: Callable[[], bool] = _always,
    ) -> dict[str, Any]:
        """Tells which parts of a page a query matched.

        Args:
            content: `Hit.content`, of a picture or a PDF.
            number: `Hit.page`.
            query: As of `search`.
            is_wanted: As of `search`.

        Returns:
            `HeatMap.record`.

        Raises:
            MissingPageError: As of `picture`.
            InputError: The model gives no token vectors, or what `search` says.
            BusyError: Too many wait.
            AbandonedError: The answer is not wanted any more.
        """
        embedder = self._index.embedder
        if embedder.multi_vector_dim is None:
            raise InputError("the model of this index gives no token vectors, so no heat map")
        path, stamp = self._source(content)
        modes = bool(embedder.info["reference_modes"])
        with self._turns.place():
            asked = _asked(query)
            with self._turns.turn(is_wanted):
                with self._picture_lock:
                    source = _read(path, content, number, self._index.settings)
                    picture = to_rgb(source, reference_modes=modes)
                _check(path, stamp)
                return heatmap(embedder, picture, asked).record()

    @contextmanager
    def _files(self) -> Iterator[None]:
        with self._files_lock:
            if self._is_closed:
                raise BusyError("the page is being closed")
            yield

    def _told(self, hit: dict[str, Any]) -> dict[str, Any]:
        problem = None
        if hit["kind"] == "text":
            try:
                self._sources.find(hit["content"], hit["paths"])
            except MissingPageError as error:
                problem = error.message
        told = {**hit, "name": os.path.basename(hit["path"]), "problem": problem}
        return {name: _shown(value) for name, value in told.items()}

    def _source(self, content: str) -> tuple[str, page.Stamp]:
        """The file that has a content at this moment."""
        if not page.is_content(content):
            raise MissingPageError("there is no such page")
        with self._files():
            self._store.refresh()
            paths = self._store.paths_of([content]).get(content, [])
        return self._sources.find(content, paths)


def _read(path: str, content: str, number: int, settings: page.Settings) -> Path | Image.Image:
    kind = page.kind_of(content)
    if kind == "text":
        raise MissingPageError("a text has no picture")
    if not 1 <= number <= page.count(path, kind, settings):
        raise MissingPageError(f"the file has no page {number}")
    pages = page.read(path, kind, [number - 1], settings)
    with closing(pages):
        for _, found in pages:
            if isinstance(found, InputError):
                raise found
            if not isinstance(found, Passage):
                return found
    raise MissingPageError("a text has no picture")


def _asked(query: Query | Callable[[], Query]) -> Query:
    asked = query() if callable(query) else query
    if isinstance(asked, bytes) and asked.startswith(b"%PDF-"):
        raise InputError(
            f"picture of {len(asked)} bytes: this is a PDF; search by a picture of one of its "
            "pages, or `jmm index` it"
        )
    return asked


def _has_pages(row: FileRow) -> bool:
    return row.state == "done" and row.n_pages > 0


def _last_written(row: FileRow) -> int:
    try:
        return page.Stamp.of(row.path).modified_ns
    except OSError:
        return 0


def _check(path: str, stamp: page.Stamp) -> None:
    """Refuses what was read from a file that has been written to since it was hashed."""
    if not is_unchanged(path, stamp):
        raise MissingPageError("the file is being written to")


def _shown(value: Any) -> Any:
    # a file's name may be any bytes; what is no UTF-8 shows as question marks
    if isinstance(value, tuple):
        return [_shown(part) for part in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
