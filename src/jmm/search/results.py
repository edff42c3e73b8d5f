"""What adding gives, and what a search finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmm.search.walk import Kind


@dataclass(frozen=True)
class Hit:
    """A page that was found.

    Attributes:
        path: A file that has it, the first of ``paths``.
        paths: All files that have it by name, those that are reached through a link last.
        page: Its number from 1: of a PDF's page, of a text's passage; 1 for a picture.
        kind: "picture", "pdf" or "text".
        score: What it is ranked by: MaxSim for a model with token vectors, else `cosine`.
        cosine: Dot product of the pooled vectors.
        text: The passage; empty for pictures and PDFs.
        start: First character of the passage in its file.
        content: Of the file: its kind and a hash of its bytes. With ``page`` it names the page.
    """

    path: str
    paths: tuple[str, ...]
    page: int
    kind: Kind
    score: float
    cosine: float
    text: str = ""
    start: int = 0
    content: str = ""

    def __repr__(self) -> str:
        page = "" if self.kind == "picture" else f", page={self.page}"
        return f"Hit({self.score:+.4f}, {self.path!r}{page})"


@dataclass(frozen=True)
class Report:
    """What `Index.add` has done.

    Attributes:
        n_pages: Pages that were embedded.
        n_files: Files that are new or have changed, and are in now.
        n_unchanged: Files that were in already.
        n_renamed: Files that were in under a path that is no more.
        n_removed: Paths that were forgotten, since they are no more.
        failed: Files that are not in, or lack pages, and why.
        passed_over: Files in folders that are not read, by suffix in lower case.
    """

    n_pages: int = 0
    n_files: int = 0
    n_unchanged: int = 0
    n_renamed: int = 0
    n_removed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        counts |= {"failed": len(self.failed), "passed_over": sum(self.passed_over.values())}
        return f"Report({', '.join(f'{name}={value}' for name, value in counts.items())})"
