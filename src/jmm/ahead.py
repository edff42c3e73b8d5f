"""Work on the next items while the caller is busy with this one."""

from __future__ import annotations

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
            do, no thread begins one.

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
    executor = ThreadPoolExecutor(n_threads, thread_name_prefix="jmm")
    ahead = _Ahead(function, executor, weigh, max_weight)
    failure: Exception | None = None
    try:
        source = iter(taken)
        more = True
        while more or ahead.pending:
            while more and len(ahead.pending) < n_ahead and not (ahead.pending and ahead.is_full):
                try:
                    item = next(source)
                except StopIteration:
                    more = False
                except Exception as error:
                    more, failure = False, error
                else:
                    ahead.add(item)
            if ahead.pending:
                yield _opened(ahead.next())
        if failure is not None:
            raise failure
    finally:
        executor.shutdown(cancel_futures=True)


class _Ahead:
    """What lies between the iterable and the caller, and its weight.

    No thread ever waits for the caller: at the end of the interpreter it would wait for ever.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        executor: ThreadPoolExecutor,
        weigh: Callable[[Any], int],
        max_weight: int,
    ) -> None:
        self.pending: deque[Future[Any]] = deque()
        self._function = function
        self._executor = executor
        self._weigh = weigh
        self._max_weight = max_weight
        self._items = 0
        self._results = 0
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        with self._lock:
            return self._items + self._results >= self._max_weight

    def add(self, item: Any) -> None:
        """An item was taken."""
        with self._lock:
            self._items += self._weight(item)
        self.pending.append(self._submitted(item))

    def next(self) -> Any:
        """The next result, which leaves."""
        result = self.pending.popleft().result()
        if isinstance(result, _Later):
            result = self._work(result.item)
        with self._lock:
            self._results -= self._weight(result)
        for place, future in enumerate(self.pending):
            if self._is_heavy():
                break
            if future.done() and isinstance(later := future.result(), _Later):
                self.pending[place] = self._submitted(later.item)
        return result

    def _submitted(self, item: Any) -> Future[Any]:
        try:
            return self._executor.submit(self._work_or_leave, item)
        except RuntimeError:  # no thread to be had
            done: Future[Any] = Future()
            done.set_result(_Later(item))
            return done

    def _work_or_leave(self, item: Any) -> Any:
        return _Later(item) if self._is_heavy() else self._work(item)

    def _work(self, item: Any) -> Any:
        result = _result(self._function, item)
        with self._lock:
            self._items -= self._weight(item)
            self._results += self._weight(result)
        return result

    def _is_heavy(self) -> bool:
        with self._lock:
            return self._results >= self._max_weight

    def _weight(self, held: Any) -> int:
        return 0 if isinstance(held, _Failed) else self._weigh(held)


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


@dataclass(frozen=True)
class _Later:
    """An item that no thread has begun, since the results weigh too much."""

    item: Any
