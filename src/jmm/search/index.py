"""An index of files, and the search in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jmm import arguments
from jmm.embedder import Embedder
from jmm.errors import InputError, JmmError
from jmm.pictures import is_picture
from jmm.progress import progress_bar
from jmm.search import adding, page, plan, record
from jmm.search.encode import Encoded
from jmm.search.identity import Identity
from jmm.search.passages import most_bytes
from jmm.search.results import Hit, Report
from jmm.search.store import PageRow, Store, check_installed
from jmm.search.walk import Kind, kind_of
from jmm.vectors import maxsim


class Index:
    """Pages of files and their vectors, in a LanceDB database in a folder.

    One process writes at a time; others may search. An object is for one thread.

    Args:
        folder: Where the index is, or a new or empty folder for a new one.
        embedder: The model; it must be the one that the index was made with. It is not closed
            with the index.

    Raises:
        InputError: The index was made by another model, or the folder holds other things.
        StoreError: The index is damaged, or cannot be read or written; any method may raise it.
        MissingExtraError: LanceDB is not installed.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from jmm import Embedder
        >>> with TemporaryDirectory() as folder, Embedder() as embedder:
        ...     notes = Path(folder, "notes.txt")
        ...     _ = notes.write_text("Rain fell on the harbour all night.")
        ...     with Index(Path(folder, "index"), embedder) as index:
        ...         report = index.add(notes)
        ...         hits = index.search("weather", top=3)
        >>> report.n_pages, [Path(hit.path).name for hit in hits]
        (1, ['notes.txt'])
    """

    def __init__(self, folder: str | os.PathLike[str], embedder: Embedder) -> None:
        self._store = Store(Path(os.fsdecode(folder)), Identity.of(embedder))
        self._embedder = embedder
        self._own = False

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        create: bool = False,
        model: str | os.PathLike[str] | None = None,
        mmproj: str | os.PathLike[str] | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        projector: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        task: str | None = None,
        n_ctx: int | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        reference_modes: bool | None = None,
        n_threads: int | None = None,
        n_gpu_layers: int | None = None,
    ) -> Index:
        """Opens an index and loads its model, which is closed with it.

        Arguments of `Embedder` that are None are as when the index was made.

        Args:
            folder: Where the index is.
            create: Whether it may be a new one.
            model: As of `Embedder`. If given, ``mmproj``, ``adapters`` and ``projector`` are the
                given ones alone.
            mmproj: As of `Embedder`.
            adapters: As of `Embedder`.
            projector: As of `Embedder`.
            profile: As of `Embedder`.
            task: As of `Embedder`.
            n_ctx: As of `Embedder`.
            min_pixels: As of `Embedder`.
            max_pixels: As of `Embedder`.
            reference_modes: As of `Embedder`.
            n_threads: As of `Embedder`.
            n_gpu_layers: As of `Embedder`.

        Raises:
            InputError: There is no index, or it was made by another model.
            StoreError: The index is damaged, or cannot be read or written.
            ModelLoadError: A file of the model is not where it was.
            MissingExtraError: LanceDB is not installed.
        """
        path = Path(os.fsdecode(folder))
        recorded = record.read(path)
        if recorded is None and not create:
            raise InputError(f"{path} is no index; `jmm index PATHS... --into {path}` makes it")
        check_installed()
        wanted: dict[str, Any] = {
            "model": model,
            "mmproj": mmproj,
            "adapters": adapters,
            "projector": projector,
            "profile": profile,
            "task": task,
            "n_ctx": n_ctx,
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
            "reference_modes": reference_modes,
            "n_threads": n_threads,
            "n_gpu_layers": n_gpu_layers,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        embedder = Embedder(**given) if recorded is None else recorded.load(given)
        try:
            index = cls(path, embedder)
        except BaseException:
            embedder.close()
            raise
        index._own = True
        return index

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Number of pages, those that other processes have added included."""
        self._store.refresh()
        return self._store.count_pages()

    def __bool__(self) -> bool:
        """True: an index without pages is one too."""
        return True

    def __contains__(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file is among those that were indexed, whichever of its paths is given."""
        given = os.path.abspath(os.fsdecode(path))
        if self._store.has_file([given, os.path.realpath(given)]):
            return True
        kind = kind_of(given)
        if kind is None or not os.path.isfile(given):
            return False
        paths = self.paths_of(page.content_of(given, kind))
        return any(os.path.exists(path) and os.path.samefile(path, given) for path in paths)

    def __repr__(self) -> str:
        return f"<Index {self._store.folder}>"

    def close(self) -> None:
        """Closes the model, if the index has loaded it."""
        if self._own:
            self._embedder.close()

    @property
    def folder(self) -> Path:
        """Where the index is."""
        return self._store.folder

    @property
    def embedder(self) -> Embedder:
        """The model."""
        return self._embedder

    @property
    def settings(self) -> page.Settings:
        """How files become pages."""
        info: dict[str, Any] = self._embedder.info
        return page.Settings(most_bytes(info["n_ctx"]), info["max_pixels"])

    def add(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        show_progress: bool | None = None,
    ) -> Report:
        """Brings the index up to date with files and folders.

        Afterwards it has of ``paths`` what they hold now: what has changed since is embedded
        again, what is gone is forgotten. Files are told apart by their content: one that was
        renamed or copied is not embedded again. What is finished is written down at once, 16
        pictures or 64 passages at a time; a call that was interrupted, or killed, goes on from
        there when it is made again.

        Args:
            paths: Files, and folders with all that is below them.
            show_progress: True draws progress bars on stderr.

        Returns:
            What was done, and which files have failed; these are tried again next time.

        Raises:
            InputError: Another process is writing into the index.
            MissingExtraError: There is a PDF, and pypdfium2 is not installed.
        """
        arguments.flag("show_progress", show_progress)
        roots = plan.listed(paths)
        bar = partial(progress_bar, shown=bool(show_progress))
        looking = partial(bar, unit="file", label="reading files")
        embedding = partial(bar, unit="page", label="embedding pages")
        with self._store.writing():
            todo = plan.make(self._store, roots, self._kinds(), self.settings, looking)
            n_pages, n_files = adding.embed(
                self._store, self._embedder, todo, self.settings, embedding
            )
            self._store.tidy()
        return Report(
            n_pages,
            n_files + todo.n_known,
            todo.n_unchanged,
            todo.n_renamed,
            todo.n_removed,
            todo.failed,
            dict(sorted(todo.passed_over.items())),
        )

    def search(self, query: Any, *, top: int = 10, candidates: int = 100) -> list[Hit]:
        """Finds the pages that fit a query best.

        The pooled vectors choose candidates, exactly and from all pages; where the model has
        token vectors, these are ranked by MaxSim, else by the dot product.

        Args:
            query: A text (str), or a picture as `Embedder.encode_images` takes it, but for a
                path, which is a ``pathlib.Path``.
            top: Most pages to give.
            candidates: Pages that are ranked by MaxSim; no fewer than ``top``.

        Returns:
            The pages, best first.

        Raises:
            InputError: The query is neither a text nor a readable picture, or an argument is
                out of range.
        """
        n_hits = arguments.whole("top", top, 1)
        n_found = max(n_hits, arguments.whole("candidates", candidates, 1))
        asked = self._asked(query)
        rows, paths = self._candidates(asked.vector, n_found)
        if not rows:
            return []
        cosines = np.array([row.vector for row in rows]) @ asked.vector
        scores = cosines
        if asked.tokens is not None:
            pages = [row.tokens for row in rows if row.tokens is not None]
            scores = maxsim([asked.tokens], pages)[0]
        hits = [
            _hit(row, paths[row.content], float(score), float(cosine))
            for row, score, cosine in zip(rows, scores, cosines, strict=True)
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.path, hit.page))[:n_hits]

    def paths_of(self, content: str) -> list[str]:
        """The files that have a content now, by the index.

        Args:
            content: `Hit.content`.

        Returns:
            Their absolute paths in order; none if the index no longer has the content.

        Raises:
            InputError: It is no name of a content.
        """
        if not page.is_content(content):
            raise InputError(f"{content!r} names no content; `Hit.content` does")
        self._store.refresh()
        return _in_order(self._store.paths_of([content]).get(content, []))

    def _kinds(self) -> tuple[Kind, ...]:
        return ("text",) if self._embedder.info["mmproj"] is None else ("picture", "pdf", "text")

    def _asked(self, query: Any) -> Encoded:
        if isinstance(query, str):
            function: Callable[..., Any] = self._embedder.encode_query
        elif is_picture(query, str_is_path=False):
            function = self._embedder.encode_images
        else:
            raise InputError(f"{type(query).__name__} given; a query is a text or a picture")
        try:
            if self._embedder.multi_vector_dim is None:
                return Encoded(function(query), None)
            return Encoded(*function(query, multi_vector="both"))
        except JmmError as error:
            error.index = None  # there is one query
            raise

    def _candidates(
        self, vector: np.ndarray[Any, np.dtype[np.float32]], n: int
    ) -> tuple[list[PageRow], dict[str, list[str]]]:
        """The nearest pages that a file has, and the files."""
        self._store.refresh()
        wanted = n
        while True:
            found = self._store.nearest(vector, wanted)
            paths = self._store.paths_of(key.content for key in found)
            keys = [key for key in found if key.content in paths]
            if len(keys) >= n or len(found) < wanted:
                return self._store.pages(keys[:n]), paths
            wanted *= 2


def _hit(row: PageRow, paths: list[str], score: float, cosine: float) -> Hit:
    paths = _in_order(paths)
    kind = page.kind_of(row.content)
    return Hit(
        paths[0], tuple(paths), row.page + 1, kind, score, cosine, row.text, row.start, row.content
    )


def _in_order(paths: list[str]) -> list[str]:
    """By name; those through a link last."""
    if len(paths) < 2:
        return paths
    return sorted(paths, key=lambda path: (os.path.realpath(path) != path, path))
