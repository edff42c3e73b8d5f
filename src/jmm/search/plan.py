"""What an index lacks, and what it has too much, of the files that the user names."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from jmm.errors import InputError
from jmm.search import page
from jmm.search.source import is_unchanged
from jmm.search.store import FileRow, PageKey, Store
from jmm.search.walk import Found, Kind, PassedOver, Unreadable, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


@dataclass(eq=False)
class Work:
    """One content whose pages are wanted.

    Attributes:
        content: Its name.
        kind: Of its files.
        paths: The files that have it, with their stamps when their content was read.
        missing: Pages to embed.
        n_pages: All pages.
        errors: What went wrong, by page.
        n_open: Pages that are yet to come.
        source: The file that is read.
    """

    content: str
    kind: Kind
    paths: dict[str, page.Stamp]
    missing: list[int]
    n_pages: int
    errors: dict[int, str] = field(default_factory=dict)
    n_open: int = 0
    source: str = ""

    def choose(self) -> str:
        """Takes as source a file that is as it was, if there is one."""
        good = (path for path, stamp in self.paths.items() if is_unchanged(path, stamp))
        self.source = next(good, next(iter(self.paths)))
        return self.source

    def is_sound(self) -> bool:
        """Whether the source is as it was."""
        return is_unchanged(self.source, self.paths[self.source])


@dataclass(eq=False)
class Plan:
    """What is to be done, and what has been.

    Attributes:
        works: Contents to embed.
        failed: Paths that cannot be indexed, and why.
        n_unchanged: Files whose content the index has under their path.
        n_known: Files whose content the index has under another, but for those renamed.
        n_renamed: Files whose content the index has under a path that is no more.
        n_removed: Paths that the index has forgotten, since they are no more.
        passed_over: Files in folders that are not read, by suffix.
    """

    works: list[Work] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    n_unchanged: int = 0
    n_known: int = 0
    n_renamed: int = 0
    n_removed: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)


def listed(paths: Any) -> list[str]:
    """Absolute paths of what the user named: one path or many.

    Raises:
        InputError: It is no path.
    """
    some = [paths] if isinstance(paths, str | bytes | os.PathLike) else paths
    try:
        names = [os.fsdecode(path) for path in some]
    except (TypeError, ValueError):
        raise InputError(f"paths is {paths!r}; a path or several are needed") from None
    for name in names:
        if not name or "\0" in name:
            raise InputError(f"{name!r} is no path; the current folder is `.`")
    return [os.path.abspath(name) for name in names]


def make(
    store: Store,
    roots: list[str],
    kinds: Sequence[Kind],
    settings: page.Settings,
    progress: Callable[[int], Any],
) -> Plan:
    """Compares the files with the index, and brings its list of files up to date.

    After it, the pages in the index are those of files that are there; what is missing is in the
    plan. Ended at any point, it can be begun anew.

    Args:
        store: The index, with the right to write.
        roots: From `listed`.
        kinds: The kinds of files that the model reads.
        settings: How files become pages.
        progress: Yields a function that counts, given the number of files; a context manager.

    Raises:
        MissingExtraError: There is a PDF, and nothing to read it with.
    """
    plan = Plan()
    found: list[Found | Unreadable] = []
    for entry in walk(roots, kinds, os.path.abspath(store.folder)):
        if isinstance(entry, PassedOver):
            plan.passed_over[PurePath(entry.path).suffix.lower()] += 1
        else:
            found.append(entry)
    if any(isinstance(item, Found) and item.kind == "pdf" for item in found):
        page.pdf_library()
    known = {row.path: row for row in store.files()}
    rows: list[FileRow] = []
    works: dict[str, Work] = {}
    stored = store.stored()
    for content, numbers in stored.items():
        if numbers.total() > len(numbers):
            store.add_once([PageKey(content, number) for number in sorted(numbers)])
    done = {
        row.content: row.n_pages
        for row in known.values()
        if row.state == "done" and len(stored.get(row.content, ())) == row.n_pages
    }
    kept = _Kept(roots)
    with progress(len(found)) as advance:
        for item in found:
            kept.add(item)
            if isinstance(item, Unreadable):
                plan.failed[item.path] = item.reason
            else:
                row = _compare(item, known.get(item.path), done, works, stored, settings, plan)
                if row is not None:
                    rows.append(row)
            advance(1)
    gone = {path: row for path, row in known.items() if kept.lacks(path)}
    plan.failed = {path: why for path, why in plan.failed.items() if path not in gone}
    plan.n_renamed = _renamed(gone.values(), (row for row in rows if row.path not in known))
    plan.n_known -= plan.n_renamed
    plan.n_removed = len(gone) - plan.n_renamed
    plan.works = list(works.values())
    store.put_files(rows)
    store.drop_files(list(gone))
    known |= {row.path: row for row in rows}
    claimed = {row.content for path, row in known.items() if path not in gone}
    store.drop_contents(sorted(stored.keys() - claimed))
    return plan


def _compare(
    item: Found,
    row: FileRow | None,
    done: dict[str, int],
    works: dict[str, Work],
    stored: Mapping[str, Collection[int]],
    settings: page.Settings,
    plan: Plan,
) -> FileRow | None:
    """Looks at one file; gives its row if that is new."""
    try:
        stamp = page.Stamp.of(item.path)
        content = page.content_of(item.path, item.kind)
        if content in done:
            if row is not None and (row.content, row.state) == (content, "done"):
                plan.n_unchanged += 1
                return None
            plan.n_known += 1
            return FileRow(item.path, content, "done", done[content])
        if content in works:
            works[content].paths[item.path] = stamp
            return FileRow(item.path, content, "open", works[content].n_pages)
        n_pages = page.count(item.path, item.kind, settings)
    except OSError as error:
        plan.failed[item.path] = f"cannot be read ({error.strerror})"
        return None
    except MemoryError:
        plan.failed[item.path] = "there is no memory to read it"
        return None
    except InputError as error:
        plan.failed[item.path] = error.message
        return FileRow(item.path, content, "failed", 0, error.message)
    missing = sorted(set(range(n_pages)) - set(stored.get(content, ())))
    works[content] = Work(content, item.kind, {item.path: stamp}, missing, n_pages)
    return FileRow(item.path, content, "open", n_pages)


def _renamed(gone: Iterable[FileRow], new: Iterable[FileRow]) -> int:
    """Files that are under another path now, with the same content."""
    contents = [Counter(row.content for row in rows if row.state == "done") for rows in (gone, new)]
    return (contents[0] & contents[1]).total()


class _Kept:
    """Which of the paths that the index knows are still there."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = set(roots)
        self._there: set[str] = set()
        self._unreadable: set[str] = set()

    def add(self, item: Found | Unreadable) -> None:
        if isinstance(item, Found):
            self._there.add(item.path)
        elif os.path.lexists(item.path):
            self._unreadable.add(item.path)

    def lacks(self, path: str) -> bool:
        if path in self._there:
            return False
        above = {path, *_parents(path)}
        return bool(above & self._roots) and not above & self._unreadable


def _parents(path: str) -> list[str]:
    parents = []
    while (parent := os.path.dirname(path)) != path:
        parents.append(parent)
        path = parent
    return parents
