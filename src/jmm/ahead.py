"""Work on the next items while the caller is busy with this one."""

from __future__ import annotations

import math
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

In = TypeVar("In")
Out = TypeVar("Out")


def map_ahead(
    function: Callable[[Any], Out],
    items: Iterable[In],
    *,
    take: Callable[[In], Any] | None = None,
    n_threads: int,
    n_ahead: int,
    weigh: Callable[[Any], int] = lambda _: 0,
    max_weight: int = 1,
) -> Generator[Out | Exception, None, None]:
    """Applies ``function`` to each item, in threads, and yields what came of it in order.

    Args:
        function: Called with one item; several calls run at a time.
        items: Read in the caller's thread, at most ``n_ahead`` items beyond the last that was
            yielded. What it raises comes after the results of the items before it; closing the
            iterator ends the threads.
        take: Called with each item in the caller's thread, as soon as it is there; ``function``
            gets what it returns.
        n_threads: Threads; 0 to call ``function`` in the caller's thread.
        n_ahead: Most items that are taken and not yet yielded, at least 1.
        weigh: What an item weighs that was taken, or its result that is not yet yielded.
        max_weight: While they weigh so much together no item is taken, and while the results
            do, none is begun but the next to be yielded.

    Yields:
        Per item its result, or the exception that ``take`` or ``function`` raised.

    Example:
        >>> list(map_ahead(abs, [-1, 2], n_threads=2, n_ahead=4))
        [1, 2]
    """
    taken = items if take is None else (_result(take, item) for item in items)
    if n_threads == 0:
        for item in taken:
            yield _opened(_result(function, item))
        return
    scale = _Scale(weigh, max_weight)
    pending: deque[Future[Out | _Failed]] = deque()
    executor = ThreadPoolExecutor(n_threads, thread_name_prefix="jmm")
    failure: Exception | None = None
    try:
        source = enumerate(taken)
        more = True
        while more or pending:
            while more and len(pending) < n_ahead and not (pending and scale.is_full):
                try:
                    index, item = next(source)
                except StopIteration:
                    more = False
                except Exception as error:
                    more, failure = False, error
                else:
                    pending.append(_submitted(executor, scale, function, item, index))
            if pending:
                yield _opened(scale.drop(pending.popleft().result()))
        if failure is not None:
            raise failure
    finally:
        scale.open()
        executor.shutdown(cancel_futures=True)


class _Scale:
    """Weighs what lies between the iterable and the caller, and holds threads back."""

    def __init__(self, weigh: Callable[[Any], int], max_weight: int) -> None:
        self._weigh = weigh
        self._max_weight: float = max_weight
        self._items = 0
        self._results = 0
        self._next = 0
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        with self._changed:
            return self._items + self._results >= self._max_weight

    def add(self, item: Any) -> None:
        """An item was taken."""
        with self._changed:
            self._items += self._weight(item)

    def wait(self, index: int) -> None:
        """Until the item may be begun."""
        with self._changed:
            self._changed.wait_for(lambda: self._results < self._max_weight or index <= self._next)

    def change(self, item: Any, result: Out | _Failed) -> Out | _Failed:
        """An item became its result."""
        with self._changed:
            self._items -= self._weight(item)
            self._results += self._weight(result)
        return result

    def drop(self, result: Out | _Failed) -> Out | _Failed:
        """The next result leaves."""
        with self._changed:
            self._results -= self._weight(result)
            self._next += 1
            self._changed.notify_all()
        return result

    def open(self) -> None:
        """Holds no thread back any more."""
        with self._changed:
            self._max_weight = math.inf
            self._changed.notify_all()

    def _weight(self, held: Any) -> int:
        return 0 if isinstance(held, _Failed) else self._weigh(held)


def _submitted(
    executor: ThreadPoolExecutor,
    scale: _Scale,
    function: Callable[[Any], Out],
    item: Any,
    index: int,
) -> Future[Out | _Failed]:
    def work() -> Out | _Failed:
        scale.wait(index)
        return scale.change(item, _result(function, item))

    scale.add(item)
    try:
        return executor.submit(work)
    except RuntimeError:  # no thread to be had
        done: Future[Out | _Failed] = Future()
        done.set_result(scale.change(item, _result(function, item)))
        return done


def _result(function: Callable[[Any], Out], item: Any) -> Out | _Failed:
    if isinstance(item, _Failed):
        return item
    try:
        return function(item)
    except Exception as error:
        return _Failed(error)


def _opened(result: Out | _Failed) -> Out | Exception:
    return result.error if isinstance(result, _Failed) else result


@dataclass(frozen=True)
class _Failed:
    error: Exception
