"""SIGTERM and SIGHUP for commands that write large files: they end them as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, of a closed terminal, become SystemExit inside.

    So what is half-written is removed. The exit status is a shell's for the signal, such as 143.
    One that is ignored, as nohup has it, stays so. In a thread other than the main one, which
    alone may set handlers, nothing changes.

    Example:
        >>> with unwound_by_signals():
        ...     signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        False
    """
    with ExitStack() as undo:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    undo.callback(signal.signal, number, signal.signal(number, _stop))
        yield


def _stop(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
