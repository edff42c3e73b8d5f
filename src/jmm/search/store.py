"""The database in the folder: which files there are, and the vectors of their pages.

Two LanceDB tables. ``files`` has a row per path, ``pages`` a row per page of a content: files that
are alike, and a file that was renamed, share pages. Every write is one atomic commit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
)

import numpy as np

from jmm.extras import missing, needed
from jmm.search import failure, record
from jmm.search.whole import to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from jmm.search.identity import Identity

    Float32 = npt.NDArray[np.float32]

P = ParamSpec("P")
T = TypeVar("T")
State: TypeAlias = Literal["open", "done", "failed"]

# Ids that one filter names.
_MOST_NAMED = 500
# Small commits are gathered into large ones when there are so many of them.
_MOST_FRAGMENTS = 200
# A search that has begun still finds what a run has replaced since.
_KEPT = timedelta(minutes=10)


def _told(method: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Has a method raise `StoreError` for whatever goes wrong in LanceDB."""

    @wraps(method)
    def guarded(store: Store, /, *words: P.args, **options: P.kwargs) -> T:
        with failure.told(store.folder):
            return method(store, *words, **options)

    return guarded


def _written(
    method: Callable[Concatenate[Store, P], None],
) -> Callable[Concatenate[Store, P], None]:
    """Has a method end before it is interrupted, and fail as `_told` says."""

    @wraps(method)
    def guarded(store: Store, /, *words: P.args, **options: P.kwargs) -> None:
        with failure.told(store.folder):
            to_the_end(lambda: method(store, *words, **options))

    return guarded


class FileRow(NamedTuple):
    """One path.

    Attributes:
        path: Absolute.
        content: Of the file, as its pages have it.
        state: "done"; "open" while pages are missing; "failed" where some cannot be had.
        n_pages: Pages of the content.
        error: Why it failed.
    """

    path: str
    content: str
    state: State
    n_pages: int
    error: str = ""


class PageKey(NamedTuple):
    """What names a page: the content of its file, and its number in it from 0."""

    content: str
    page: int


class PageRow(NamedTuple):
    """One page.

    Attributes:
        content: Of its file.
        page: Number in it, from 0.
        text: Of a passage; empty for a picture.
        start: First character of the passage in its file.
        vector: float32 ``[dim]``.
        tokens: float32 ``[n_tokens, multi_vector_dim]``, None for a model without them.
    """

    content: str
    page: int
    text: str
    start: int
    vector: Float32
    tokens: Float32 | None


class Store:
    """The tables of one folder.

    Args:
        folder: Where they are, or are to be.
        identity: Of the model that makes the vectors.

    Raises:
        InputError: The folder holds other things, or was made by another model or version.
        StoreError: It is damaged, or cannot be read or written.
        MissingExtraError: LanceDB is not installed.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        lancedb = _lancedb()
        self.folder = folder
        recorded = record.read(folder)
        with failure.told(folder):
            if recorded is None:
                record.make_folder(folder)
                with record.locked(folder, wait=True):
                    recorded = record.read(folder) or _make(folder, identity)
            recorded.check(identity)
            self._files, self._pages = map(lancedb.connect(str(folder)).open_table, record.TABLES)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other writers out; a process that ends, however it does, lets go.

        Raises:
            InputError: Another process writes.
        """
        with record.locked(self.folder):
            self.refresh()
            yield

    @_told
    def files(self) -> list[FileRow]:
        """All paths."""
        rows = self._files.search().limit(None).to_arrow().to_pylist()
        return [_file_row(row) for row in rows]

    @_written
    def put_files(self, rows: Sequence[FileRow]) -> None:
        """Adds paths, or replaces what is known of them."""
        if not rows:
            return
        pyarrow = _pyarrow()
        fields = [{"id": _path_id(row.path), **row._asdict()} for row in rows]
        for row in fields:
            row["path"] = os.fsencode(row["path"])
        data = pyarrow.Table.from_pylist(fields, schema=_files_schema())
        merge = self._files.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(data)

    @_written
    def drop_files(self, paths: Sequence[str]) -> None:
        """Forgets paths."""
        for ids in _some(list(map(_path_id, paths))):
            self._files.delete(_is_one_of("id", ids))

    @_told
    def stored(self) -> dict[str, Counter[int]]:
        """The pages that are there, by content, and how often: once, if nothing went wrong."""
        found: dict[str, Counter[int]] = {}
        query = self._pages.search().select(["content", "page"]).limit(None)
        for batch in query.to_batches():
            for content, page in zip(
                batch.column("content").to_pylist(), batch.column("page").to_pylist(), strict=True
            ):
                found.setdefault(content, Counter())[page] += 1
        return found

    @_written
    def add_pages(self, rows: Sequence[PageRow]) -> None:
        """Adds pages that are not there."""
        if rows:
            self._pages.add(_pages_table(rows, self._pages.schema))

    def add_once(self, keys: Sequence[PageKey]) -> None:
        """Leaves of pages that are there several times one."""
        rows = self.pages(keys)
        self.drop_contents(sorted({content for content, _ in keys}))
        self.add_pages(rows)

    @_written
    def drop_contents(self, contents: Sequence[str]) -> None:
        """Removes all pages of contents."""
        for some in _some(contents):
            self._pages.delete(_is_one_of("content", some))

    @_told
    def count_pages(self) -> int:
        """Number of pages."""
        return int(self._pages.count_rows())

    @_told
    def nearest(self, vector: Float32, n: int) -> list[PageKey]:
        """The pages with the greatest dot products, the greatest first; equal ones by their key.

        More than ``n`` where several are equal to the last.
        """
        if n == 0:
            return []
        query = self._pages.search(vector, vector_column_name="vector").distance_type("dot")
        query = query.select(["content", "page", "_distance"])
        wanted = n + 1
        while True:
            rows = query.limit(wanted).to_arrow().to_pylist()
            rows.sort(key=lambda row: (row["_distance"], row["content"], row["page"]))
            if len(rows) < wanted or rows[-1]["_distance"] > rows[n - 1]["_distance"]:
                return [PageKey(row["content"], row["page"]) for row in rows]
            wanted *= 2

    @_told
    def pages(self, keys: Sequence[PageKey]) -> list[PageRow]:
        """Pages by their keys, in the same order; those that are not there are left out."""
        found: dict[PageKey, PageRow] = {}
        for some in _some(keys):
            for row in _page_rows(
                self._pages.search().where(_is_page(some)).limit(None).to_arrow()
            ):
                found[PageKey(row.content, row.page)] = row
        return [found[key] for key in keys if key in found]

    @_told
    def paths_of(self, contents: Iterable[str]) -> dict[str, list[str]]:
        """The paths that have these contents, in order."""
        found: dict[str, list[str]] = {}
        for some in _some(sorted(set(contents))):
            query = self._files.search().where(_is_one_of("content", some)).limit(None)
            for row in query.to_arrow().to_pylist():
                found.setdefault(row["content"], []).append(os.fsdecode(row["path"]))
        return {content: sorted(paths) for content, paths in found.items()}

    @_told
    def has_file(self, paths: Sequence[str]) -> bool:
        """Whether one of the paths is known."""
        return bool(self._files.count_rows(_is_one_of("id", list(map(_path_id, paths)))))

    @_told
    def refresh(self) -> None:
        """Sees what other processes have written."""
        for table in (self._files, self._pages):
            table.checkout_latest()

    @_written
    def tidy(self) -> None:
        """Gathers small commits, and gives back the room of what was removed."""
        for table in (self._files, self._pages):
            if table.stats()["fragment_stats"]["num_small_fragments"] > _MOST_FRAGMENTS:
                table.optimize(cleanup_older_than=_KEPT)


def _make(folder: Path, identity: Identity) -> Identity:
    """Makes the tables and then, as the last step, an index of them."""

    def make() -> None:
        database = _lancedb().connect(str(folder))
        schemas = _files_schema(), _pages_schema(identity)
        for name, schema in zip(record.TABLES, schemas, strict=True):
            if database.create_table(name, schema=schema, exist_ok=True).count_rows():
                raise record.missing(folder)
        record.write(folder, identity)

    to_the_end(make)
    return identity


def check_installed() -> None:
    """Raises MissingExtraError unless LanceDB is there, without the seconds of its import."""
    if sys.modules.get("lancedb") is None and importlib.util.find_spec("lancedb") is None:
        raise missing("lancedb", "an index")


def _lancedb() -> Any:
    return needed("lancedb", "an index")


def _pyarrow() -> Any:
    return needed("pyarrow", "an index")


def _files_schema() -> Any:
    pa = _pyarrow()
    names = {"id": pa.string(), "path": pa.binary(), "content": pa.string(), "state": pa.string()}
    return pa.schema([*names.items(), ("n_pages", pa.int64()), ("error", pa.string())])


def _pages_schema(identity: Identity) -> Any:
    pa = _pyarrow()
    fields = [
        ("content", pa.string()),
        ("page", pa.int64()),
        ("text", pa.string()),
        ("start", pa.int64()),
        ("vector", pa.list_(pa.float32(), identity.dim)),
    ]
    if identity.multi_vector_dim is not None:
        fields.append(("tokens", pa.list_(pa.list_(pa.float32(), identity.multi_vector_dim))))
    return pa.schema(fields)


def _pages_table(rows: Sequence[PageRow], schema: Any) -> Any:
    pa = _pyarrow()
    columns = {
        "content": pa.array([row.content for row in rows]),
        "page": pa.array([row.page for row in rows], pa.int64()),
        "text": pa.array([row.text for row in rows]),
        "start": pa.array([row.start for row in rows], pa.int64()),
        "vector": _vectors([row.vector[None] for row in rows]),
    }
    if "tokens" in schema.names:
        tokens = [row.tokens for row in rows if row.tokens is not None]
        offsets = np.cumsum([0, *map(len, tokens)], dtype=np.int32)
        columns["tokens"] = pa.ListArray.from_arrays(pa.array(offsets), _vectors(tokens))
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _vectors(parts: list[Float32]) -> Any:
    pa = _pyarrow()
    values = np.concatenate(parts)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _page_rows(table: Any) -> list[PageRow]:
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    rows = []
    for i in range(table.num_rows):
        content, page, text, start = (columns[name][i].as_py() for name in PageRow._fields[:4])
        tokens = None
        if "tokens" in columns:
            per_token = columns["tokens"][i].values
            tokens = _array(per_token).reshape(len(per_token), -1)
        vector = _array(columns["vector"].slice(i, 1))
        rows.append(PageRow(content, page, text, start, vector, tokens))
    return rows


def _array(lists: Any) -> Float32:
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False), np.float32)


def _file_row(row: dict[str, Any]) -> FileRow:
    fields = {**row, "path": os.fsdecode(row["path"])}
    return FileRow(**{name: fields[name] for name in FileRow._fields})


def _path_id(path: str) -> str:
    # a name may be any bytes, and filters are SQL
    return hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _some(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _MOST_NAMED):
        yield items[first : first + _MOST_NAMED]


def _is_one_of(column: str, values: Sequence[str]) -> str:
    # hexadecimal digits and our own kinds' names: nothing in them needs quoting
    return f"{column} IN ({', '.join(map(repr, values))})"


def _is_page(keys: Sequence[PageKey]) -> str:
    numbers: dict[str, list[str]] = {}
    for content, page in keys:
        numbers.setdefault(content, []).append(str(page))
    return " OR ".join(
        f"(content = {content!r} AND page IN ({', '.join(pages)}))"
        for content, pages in numbers.items()
    )
