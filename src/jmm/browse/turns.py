"""Whose turn it is at the model: one at a time, and a few may wait."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmm.errors import JmmError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class BusyError(JmmError, RuntimeError):
    """Too many wait already, or nothing new is begun any more."""


class AbandonedError(JmmError, RuntimeError):
    """Nobody waits for the answer any more."""


class Turns:
    """A queue of limited length before something that one thread uses at a time.

    Args:
        most: Threads that are in at once, the one whose turn it is included.

    Example:
        >>> turns = Turns(1)
        >>> with turns.place(), turns.turn(lambda: True), turns.place():
        ...     pass
        Traceback (most recent call last):
        jmm.browse.turns.BusyError: too many requests wait for the model; try again in a while
    """

    def __init__(self, most: int) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._turn = threading.Lock()
        self._is_closed = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """Holds a place in the queue for the block: whoever has none needs no memory.

        Raises:
            BusyError: The queue is full.
        """
        if not self._places.acquire(blocking=False):
            raise BusyError("too many requests wait for the model; try again in a while")
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def turn(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Waits in a place of the queue, and holds the turn for the block.

        Args:
            is_wanted: Asked when the turn has come: whether the answer still matters.

        Raises:
            BusyError: The queue is closed.
            AbandonedError: The answer is not wanted.
        """
        with self._turn:
            if self._is_closed:
                raise BusyError("the page is being closed")
            if not is_wanted():
                raise AbandonedError("nobody waits for this any more")
            yield

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
        return self._turn.locked()

    def close(self) -> None:
        """Lets nobody begin any more."""
        self._is_closed = True

    def wait(self) -> None:
        """Returns when nobody has the turn."""
        with self._turn:
            pass
