"""The database in the folder: which files there are, and the vectors of their pages.

Two LanceDB tables. ``files`` has a row per path, ``pages`` a row per page of a content: files that
are alike, and a file that was renamed, share pages. Every write is one atomic commit.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from jmm.errors import InputError
from jmm.search.identity import Identity
from jmm.search.packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    Float32 = npt.NDArray[np.float32]

State: TypeAlias = Literal["open", "done", "failed"]

FORMAT = 1

_RECORD = "index.json"
_LOCK = "lock"
_TABLES = ("files", "pages")
# Ids that one filter names.
_MOST_NAMED = 500
# Small commits are gathered into large ones when there are so many of them.
_MOST_FRAGMENTS = 200
# A search that has begun still finds what a run has replaced since.
_KEPT = timedelta(minutes=10)


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
        MissingPackageError: LanceDB is not installed.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        lancedb = needed("lancedb")
        self.folder = folder
        recorded = recorded_identity(folder)
        if recorded is None:
            _begin(folder, identity)
        else:
            recorded.check(identity)
        database = lancedb.connect(str(folder))
        self._files = database.create_table("files", schema=_files_schema(), exist_ok=True)
        self._pages = database.create_table("pages", schema=_pages_schema(identity), exist_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other writers out; a process that ends, however it does, lets go.

        Raises:
            InputError: Another process writes.
        """
        with (self.folder / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another process is writing into {self.folder}") from None
            for table in (self._files, self._pages):
                table.checkout_latest()
            yield

    def files(self) -> list[FileRow]:
        """All paths."""
        rows = self._files.search().limit(None).to_arrow().to_pylist()
        return [_file_row(row) for row in rows]

    def put_files(self, rows: Sequence[FileRow]) -> None:
        """Adds paths, or replaces what is known of them."""
        if not rows:
            return
        pyarrow = needed("pyarrow")
        fields = [{"id": _path_id(row.path), **row._asdict()} for row in rows]
        for row in fields:
            row["path"] = os.fsencode(row["path"])
        data = pyarrow.Table.from_pylist(fields, schema=_files_schema())
        merge = self._files.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(data)

    def drop_files(self, paths: Sequence[str]) -> None:
        """Forgets paths."""
        for ids in _some(list(map(_path_id, paths))):
            self._files.delete(_is_one_of("id", ids))

    def stored(self) -> dict[str, set[int]]:
        """The pages that are there, by content."""
        found: dict[str, set[int]] = {}
        query = self._pages.search().select(["content", "page"]).limit(None)
        for batch in query.to_batches():
            for content, page in zip(
                batch.column("content").to_pylist(), batch.column("page").to_pylist(), strict=True
            ):
                found.setdefault(content, set()).add(page)
        return found

    def add_pages(self, rows: Sequence[PageRow]) -> None:
        """Adds pages that are not there."""
        if rows:
            self._pages.add(_pages_table(rows, self._pages.schema))

    def drop_contents(self, contents: Sequence[str]) -> None:
        """Removes all pages of contents."""
        for some in _some(contents):
            self._pages.delete(_is_one_of("content", some))

    def count_pages(self) -> int:
        """Number of pages."""
        return int(self._pages.count_rows())

    def nearest(self, vector: Float32, n: int) -> list[PageRow]:
        """The pages with the greatest dot products, the greatest first."""
        if n == 0:
            return []
        query = self._pages.search(vector, vector_column_name="vector").distance_type("dot")
        columns = self._pages.schema.names
        return _page_rows(query.select([*columns, "_distance"]).limit(n).to_arrow())

    def paths_of(self, contents: Iterable[str]) -> dict[str, list[str]]:
        """The paths that have these contents, in order."""
        found: dict[str, list[str]] = {}
        for some in _some(sorted(set(contents))):
            query = self._files.search().where(_is_one_of("content", some)).limit(None)
            for row in query.to_arrow().to_pylist():
                found.setdefault(row["content"], []).append(os.fsdecode(row["path"]))
        return {content: sorted(paths) for content, paths in found.items()}

    def refresh(self) -> None:
        """Sees what other processes have written."""
        for table in (self._files, self._pages):
            table.checkout_latest()

    def tidy(self) -> None:
        """Gathers small commits, and gives back the room of what was removed."""
        for table in (self._files, self._pages):
            if table.stats()["fragment_stats"]["num_small_fragments"] > _MOST_FRAGMENTS:
                table.optimize(cleanup_older_than=_KEPT)


def recorded_identity(folder: Path) -> Identity | None:
    """The model of an index; None where there is none yet.

    Raises:
        InputError: The record is damaged, or of another version.
    """
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / _RECORD} cannot be read: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{folder} is no index of this version of jmm; use a new folder")
    return Identity.from_json(record["model"])


def _begin(folder: Path, identity: Identity) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is no folder") from None
    part = folder / f"{_RECORD}.part"
    strangers = sorted({path.name for path in folder.iterdir()} - {part.name, _LOCK})
    if strangers:
        raise InputError(f"{folder} holds other things ({strangers[0]!r}); give a new folder")
    record = {"format": FORMAT, "model": identity.to_json()}
    with part.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / _RECORD)


def _files_schema() -> Any:
    pa = needed("pyarrow")
    names = {"id": pa.string(), "path": pa.binary(), "content": pa.string(), "state": pa.string()}
    return pa.schema([*names.items(), ("n_pages", pa.int64()), ("error", pa.string())])


def _pages_schema(identity: Identity) -> Any:
    pa = needed("pyarrow")
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
    pa = needed("pyarrow")
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
    pa = needed("pyarrow")
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


def _some(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(items), _MOST_NAMED):
        yield items[first : first + _MOST_NAMED]


def _is_one_of(column: str, values: Sequence[str]) -> str:
    # hexadecimal digits and our own kinds' names: nothing in them needs quoting
    return f"{column} IN ({', '.join(map(repr, values))})"
