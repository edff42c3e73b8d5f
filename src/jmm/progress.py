"""The progress bar, where one was asked for."""

from __future__ import annotations

import sys
import threading
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
    # tqdm draws under a lock that an error leaves locked, and at exit its monitor waits for it: so
    # this bar has no monitor, and a lock of its own.
    from tqdm.auto import tqdm

    kind = type("jmm_bar", (tqdm,), {"monitor_interval": 0, "_lock": threading.RLock()})
    file = _Stream(sys.stderr)
    with kind(total=total, desc=label, unit=unit, unit_scale=unit == "B", file=file) as bar:
        yield bar.update


class _Stream:
    """A stream that takes what it is given and drops it, once that cannot be written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes, or drops."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flushes, if there is anything."""
        self._try(self._stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        if self._is_lost:
            return
        try:
            write()
        except OSError as error:
            if error.errno is None:  # not of writing: raised by a signal's handler
                raise
            self._is_lost = True
