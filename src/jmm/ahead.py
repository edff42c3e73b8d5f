"""Work on the next items while the caller is busy with this one."""

from __future__ import annotations

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
) -> Generator[Out | Exception, None, None]:
    """Applies ``function`` to each item, in threads, and yields what came of it in order.

    Args:
        function: Called with one item; several calls run at a time.
        items: Read in the caller's thread, at most ``n_ahead`` items beyond the last that was
            yielded. What it raises ends the iteration; closing the iterator ends the threads.
        take: Called with each item in the caller's thread, as soon as it is there; ``function``
            gets what it returns.
        n_threads: Threads; 0 to call ``function`` in the caller's thread.
        n_ahead: Most items that are taken and not yet yielded, at least 1.

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
    pending: deque[Future[Out | _Failed]] = deque()
    executor = ThreadPoolExecutor(n_threads, thread_name_prefix="jmm")
    try:
        for item in taken:
            pending.append(_submitted(executor, function, item))
            if len(pending) >= n_ahead:
                yield _opened(pending.popleft().result())
        while pending:
            yield _opened(pending.popleft().result())
    finally:
        executor.shutdown(cancel_futures=True)


def _result(function: Callable[[Any], Out], item: Any) -> Out | _Failed:
    if isinstance(item, _Failed):
        return item
    try:
        return function(item)
    except Exception as error:
        return _Failed(error)


def _submitted(
    executor: ThreadPoolExecutor, function: Callable[[Any], Out], item: Any
) -> Future[Out | _Failed]:
    try:
        return executor.submit(_result, function, item)
    except RuntimeError:  # no thread to be had
        done: Future[Out | _Failed] = Future()
        done.set_result(_result(function, item))
        return done


def _opened(result: Out | _Failed) -> Out | Exception:
    return result.error if isinstance(result, _Failed) else result


@dataclass(frozen=True)
class _Failed:
    error: Exception
