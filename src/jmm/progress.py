"""The progress bar, where one was asked for."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(
    total: int, *, shown: bool, unit: str = "item", label: str | None = None
) -> Iterator[Callable[[int], object]]:
    """Yields a function that counts finished items.

    Where stderr is missing, closed, full or read by nobody any more, nothing is drawn: the work
    goes on.

    Args:
        total: Number of items.
        shown: False draws nothing.
        unit: What is counted; bytes, "B", are shown as kB, MB and so on.
        label: What is done, in front of the bar.
    """
    if not shown or sys.stderr is None or getattr(sys.stderr, "closed", False):
        yield lambda _: None
        return
    bar = _Bar(total=total, desc=label, unit=unit, unit_scale=unit == "B")
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    """One of tqdm, until drawing it fails."""

    def __init__(self, **options: Any) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = None
        with self._until_it_fails():
            self._bar = tqdm(**options)

    def advance(self, n: int) -> None:
        """Counts ``n`` more."""
        if self._bar is not None:
            with self._until_it_fails():
                self._bar.update(n)

    def close(self) -> None:
        """Leaves the last state on the screen."""
        if self._bar is not None:
            with self._until_it_fails():
                self._bar.close()

    @contextmanager
    def _until_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno is None:  # not of writing: raised by a signal's handler
                raise
            if self._bar is not None:
                self._bar.disable = True  # its end would draw again
            self._bar = None
