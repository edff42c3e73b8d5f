"""Embeds the pages that an index lacks, and writes them down as they are done."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from jmm.errors import InputError, JmmError
from jmm.search import page
from jmm.search.encode import Encoded, encode
from jmm.search.passages import Passage
from jmm.search.source import is_unchanged
from jmm.search.store import FileRow, PageRow, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from jmm.embedder import Embedder
    from jmm.search.plan import Plan, Work

# What is embedded and written together: 16 pictures, or 64 passages.
_CHUNK = 64
_PICTURE = 4


class _Page(NamedTuple):
    work: Work
    number: int
    content: Any


def embed(
    store: Store,
    embedder: Embedder,
    plan: Plan,
    settings: page.Settings,
    progress: Callable[[int], AbstractContextManager[Callable[[int], Any]]],
) -> tuple[int, int]:
    """Embeds what is missing.

    Args:
        store: The index, with the right to write.
        embedder: The model.
        plan: What is missing; gets the files that fail.
        settings: How files become pages.
        progress: Yields a function that counts, given the number of pages; a context manager.

    Returns:
        How many pages were embedded, and how many files are whole now.
    """
    for work in plan.works:
        work.n_open = len(work.missing)
    works = [work for work in plan.works if work.missing]
    n_files = _finish(store, [work for work in plan.works if not work.missing], plan)
    n_pages = 0
    with (
        progress(sum(work.n_open for work in works)) as advance,
        closing(_pages(works, settings)) as pages,
    ):
        for chunk in _chunks(pages):
            n_pages += _embed_chunk(store, embedder, chunk)
            touched = {id(item.work): item.work for item in chunk}.values()
            n_files += _finish(store, [work for work in touched if not work.n_open], plan)
            advance(len(chunk))
    return n_pages, n_files


def _embed_chunk(store: Store, embedder: Embedder, chunk: list[_Page]) -> int:
    good = [item for item in chunk if not isinstance(item.content, Exception)]
    results = encode(embedder, [_document(item.content) for item in good]) if good else []
    rows = []
    for item, result in zip(good, results, strict=True):
        if isinstance(result, JmmError):
            item.work.errors[item.number] = _told(result, item.work)
        elif item.work.is_sound():
            rows.append(_row(item, result))
    for item in chunk:
        item.work.n_open -= 1
        if isinstance(item.content, Exception):
            item.work.errors[item.number] = _told(item.content, item.work)
    store.add_pages(rows)
    return len(rows)


def _finish(store: Store, works: list[Work], plan: Plan) -> int:
    rows = [
        FileRow(path, work.content, "failed" if error else "done", work.n_pages, error)
        for work in works
        for path, error in _errors(work)
    ]
    plan.failed |= {row.path: row.error for row in rows if row.error}
    store.put_files(rows)
    return sum(row.state == "done" for row in rows)


def _pages(works: list[Work], settings: page.Settings) -> Generator[_Page, None, None]:
    for work in works:
        missing = iter(work.missing)
        try:
            with closing(page.read(work.choose(), work.kind, work.missing, settings)) as pages:
                for number, content in pages:
                    next(missing)
                    yield _Page(work, number, content)
        except (JmmError, OSError, MemoryError) as error:
            yield from (_Page(work, number, error) for number in missing)
        else:
            lost = InputError("the file has fewer pages than when it was looked at")
            yield from (_Page(work, number, lost) for number in missing)


def _chunks(pages: Iterator[_Page]) -> Iterator[list[_Page]]:
    chunk: list[_Page] = []
    size = 0
    for item in pages:
        chunk.append(item)
        size += 1 if isinstance(item.content, Passage) else _PICTURE
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _document(content: Any) -> Any:
    return content.text if isinstance(content, Passage) else content


def _row(item: _Page, result: Encoded) -> PageRow:
    text, start = item.content if isinstance(item.content, Passage) else ("", 0)
    return PageRow(item.work.content, item.number, text, start, *result)


def _told(error: Exception, work: Work) -> str:
    if isinstance(error, JmmError):
        return error.message.removeprefix(f"{work.source}: ")
    if isinstance(error, MemoryError):
        return "there is no memory to read it"
    return f"cannot be read ({getattr(error, 'strerror', error)})"


def _errors(work: Work) -> Iterator[tuple[str, str]]:
    """The files of a content, and why they are not in."""
    is_sound = not work.source or work.is_sound()
    for path, stamp in work.paths.items():
        if not os.path.lexists(path):
            yield path, "was deleted while it was being indexed"
        elif not is_unchanged(path, stamp):
            yield path, "was written to while it was being indexed; index it again"
        elif not is_sound:
            yield path, "a copy of it was written to while it was being indexed; index it again"
        else:
            yield path, _error(work)


def _error(work: Work) -> str:
    if not work.errors:
        return ""
    first = min(work.errors)
    where = f"page {first + 1}: " if work.n_pages > 1 else ""
    n_more = len(work.errors) - 1
    more = f" (and {n_more} more page{'s' if n_more > 1 else ''})" if n_more else ""
    return f"{where}{work.errors[first]}{more}"
