"""Writes that are waited for, whatever interrupts."""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def to_the_end(function: Callable[[], T]) -> T:
    """Runs a function in a thread, and waits for its end even after Ctrl-C.

    LanceDB writes in threads of its own, which go on after an exception in this one: what comes
    next must find the write done.

    Raises:
        BaseException: What the function raised, or what interrupted this thread meanwhile.

    Example:
        >>> to_the_end(lambda: 3)
        3
    """
    run = _Run(function)
    interruption: BaseException | None = None
    try:
        # not threading.Thread, whose start waits in a way that an exception leaves half done
        _thread.start_new_thread(run, ())
    except BaseException as error:
        if run.is_prevented():
            raise
        interruption = error
    while not run.is_done:
        try:
            run.end.acquire()
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption
    if run.error is not None:
        raise run.error
    return run.results[0]


class _Run(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._gate = threading.Lock()
        self._state = "new"
        self.end = threading.Lock()  # held until the end; an exception cannot leave it half taken
        self.end.acquire()
        self.is_done = False
        self.results: list[T] = []
        self.error: BaseException | None = None

    def __call__(self) -> None:
        with self._gate:
            if self._state == "prevented":
                return
            self._state = "begun"
        try:
            self.results.append(self._function())
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self.end.release()

    def is_prevented(self) -> bool:
        """Whether it has not begun; then it never will."""
        with self._gate:
            if self._state == "new":
                self._state = "prevented"
            return self._state == "prevented"
