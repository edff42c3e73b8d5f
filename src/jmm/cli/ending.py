"""SIGTERM for commands that write large files: it ends them as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """SIGTERM becomes SystemExit inside, so that what is half-written is removed.

    The exit status is a shell's for SIGTERM, 143. In a thread other than the main one, which
    alone may set handlers, nothing changes.

    Example:
        >>> with unwound_by_sigterm():
        ...     signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        False
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
