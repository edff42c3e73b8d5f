"""Which file has a content at this moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jmm.errors import InputError
from jmm.search import page

if TYPE_CHECKING:
    from collections.abc import Iterable


class MissingPageError(InputError):
    """A page's file is gone, has changed, or was never in the index."""


class Sources:
    """Finds the files of contents; each file is hashed once while it stays as it is.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     notes = Path(folder, "notes.txt")
        ...     _ = notes.write_text("Rain fell on the harbour all night.")
        ...     content = page.content_of(str(notes), "text")
        ...     path, _ = Sources().find(content, [f"{folder}/gone.txt", str(notes)])
        >>> Path(path).name
        'notes.txt'
    """

    def __init__(self) -> None:
        self._hashed: dict[str, tuple[page.Stamp, str]] = {}

    def find(self, content: str, paths: Iterable[str]) -> tuple[str, page.Stamp]:
        """The first of the files that has a content now.

        Args:
            content: As `Hit.content`.
            paths: Where it was, as `Hit.paths`.

        Returns:
            The file, and its stamp. After it was read, `is_unchanged` tells whether that was the
            content.

        Raises:
            MissingPageError: None has it.
        """
        if not page.is_content(content):
            raise MissingPageError("there is no such page")
        why = "the page is not in the index any more"
        for path in paths:
            try:
                if not Path(path).is_file():
                    why = "the file is gone"
                    continue
                stamp = page.Stamp.of(path)
                if self._content(path, stamp, content) == content:
                    return path, stamp
                why = "the file has changed since it was indexed; `jmm index` reads it again"
            except OSError as error:
                why = f"the file cannot be read ({error.strerror})"
        raise MissingPageError(why)

    def _content(self, path: str, stamp: page.Stamp, content: str) -> str:
        known = self._hashed.get(path)
        if known is None or known[0] != stamp:
            known = stamp, page.content_of(path, page.kind_of(content))
            self._hashed[path] = known
        return known[1]


def is_unchanged(path: str, stamp: page.Stamp) -> bool:
    """Whether a file has not been written to since."""
    try:
        return page.Stamp.of(path) == stamp
    except OSError:
        return False
