"""Work on the next items: order, bounds, errors, and threads that end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from unittest import mock

import pytest

from jmm.ahead import map_ahead

SETTINGS = [(0, 1), (0, 8), (1, 1), (2, 1), (2, 8), (8, 3)]


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jmm")]


@pytest.mark.parametrize(("n_threads", "n_ahead"), SETTINGS)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 100])
def test_order(n: int, n_threads: int, n_ahead: int) -> None:
    results = map_ahead(lambda i: i * i, range(n), n_threads=n_threads, n_ahead=n_ahead)
    assert list(results) == [i * i for i in range(n)]
    assert ours() == []


def test_the_first_may_be_the_last_to_end() -> None:
    """Later items are done while the first waits for them."""
    done = threading.Event()

    def work(i: int) -> int:
        if i == 3:
            done.set()
        elif i == 0:
            assert done.wait(60)
        return i

    assert list(map_ahead(work, range(4), n_threads=2, n_ahead=4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("n_threads", "n_ahead"), SETTINGS)
def test_at_most_so_many_are_taken(n_threads: int, n_ahead: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for i in count():
            taken += 1
            yield i

    results = map_ahead(lambda i: i, items(), n_threads=n_threads, n_ahead=n_ahead)
    assert taken == 0
    for i, result in zip(range(50), results, strict=False):
        assert result == i
        assert 1 <= taken - i <= n_ahead
    results.close()
    assert taken <= 50 + n_ahead
    assert ours() == []


@pytest.mark.parametrize(("n_threads", "n_ahead"), SETTINGS)
def test_what_fails_is_a_result(n_threads: int, n_ahead: int) -> None:
    def work(i: int) -> int:
        if i % 3 == 1:
            raise KeyError(i)
        return i

    results = list(map_ahead(work, range(9), n_threads=n_threads, n_ahead=n_ahead))
    assert [i for i, result in enumerate(results) if isinstance(result, KeyError)] == [1, 4, 7]
    assert [result.args for result in results if isinstance(result, KeyError)] == [(1,), (4,), (7,)]


@pytest.mark.parametrize(("n_threads", "n_ahead"), SETTINGS)
def test_take_runs_here_and_may_fail(n_threads: int, n_ahead: int) -> None:
    here = threading.get_ident()
    threads = set()

    def take(i: int) -> int:
        assert threading.get_ident() == here
        if i == 2:
            raise ValueError(i)
        return -i

    def work(i: int) -> int:
        threads.add(threading.get_ident())
        return i

    results = list(map_ahead(work, range(5), take=take, n_threads=n_threads, n_ahead=n_ahead))
    assert results[:2] + results[3:] == [0, -1, -3, -4]
    assert isinstance(results[2], ValueError)
    assert (here in threads) == (n_threads == 0)


def test_an_exception_may_be_a_result() -> None:
    error = ValueError("a value")
    for n_threads in (0, 2):
        assert list(map_ahead(lambda _: error, [1], n_threads=n_threads, n_ahead=2)) == [error]


@pytest.mark.parametrize(("n_threads", "n_ahead"), SETTINGS)
def test_what_the_iterable_raises(n_threads: int, n_ahead: int) -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise RuntimeError("of the iterable")

    seen: list[Any] = []
    with pytest.raises(RuntimeError, match="of the iterable"):
        seen.extend(map_ahead(lambda i: i, items(), n_threads=n_threads, n_ahead=n_ahead))
    assert seen == list(range(20))
    assert ours() == []


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_heavy_results_hold_threads_back(n_threads: int) -> None:
    """They are made one for one as they are yielded, beside those already begun."""
    lock, made = threading.Lock(), 0

    def work(i: int) -> int:
        nonlocal made
        with lock:
            made += 1
        return i

    results = map_ahead(
        work,
        count(),
        n_threads=n_threads,
        n_ahead=40,
        weigh=lambda i: 1 if isinstance(i, int) else 0,
        max_weight=5,
    )
    for i, result in zip(range(200), results, strict=False):
        assert result == i
        assert made <= i + 1 + 5 + n_threads
    results.close()
    assert ours() == []


def test_heavy_items_are_not_taken() -> None:
    taken, go = [], threading.Event()

    def items() -> Iterator[str]:
        for i in count():
            taken.append(i)
            yield f"item {i}"

    def work(item: str) -> str:
        go.wait(60)
        return item

    results = map_ahead(work, items(), n_threads=2, n_ahead=40, weigh=lambda _: 10, max_weight=30)
    threading.Timer(0.1, go.set).start()
    assert next(results) == "item 0"
    assert len(taken) == 3
    results.close()


@pytest.mark.parametrize("weight", [0, 1, 7])
@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_order_under_weight(n_threads: int, weight: int) -> None:
    results = map_ahead(
        lambda i: i,
        range(300),
        n_threads=n_threads,
        n_ahead=9,
        weigh=lambda _: weight,
        max_weight=2,
    )
    assert list(results) == list(range(300))


def test_no_iterable() -> None:
    with pytest.raises(TypeError):
        next(map_ahead(abs, 3, n_threads=2, n_ahead=2))  # type: ignore[arg-type]
    assert ours() == []


@pytest.mark.parametrize("end", ["close", "delete", "throw"])
def test_threads_end(end: str) -> None:
    results = map_ahead(lambda i: i, count(), n_threads=3, n_ahead=6)
    assert next(results) == 0
    assert ours() != []
    if end == "close":
        results.close()
    elif end == "throw":
        with pytest.raises(KeyboardInterrupt):
            results.throw(KeyboardInterrupt())
    del results
    assert ours() == []


def test_nothing_more_is_begun_after_closing() -> None:
    begun, go = [], threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i:
            go.wait(60)
        return i

    results = map_ahead(work, count(), n_threads=1, n_ahead=6)
    assert next(results) == 0
    threading.Timer(0.05, go.set).start()
    results.close()
    assert set(begun) <= {0, 1}


def test_without_a_thread_to_be_had() -> None:
    with mock.patch.object(ThreadPoolExecutor, "submit", side_effect=RuntimeError("no thread")):
        assert list(map_ahead(abs, range(-4, 0), n_threads=2, n_ahead=3)) == [4, 3, 2, 1]


def test_the_interrupt_of_a_call_passes() -> None:
    def work(i: int) -> int:
        raise KeyboardInterrupt if i == 1 else ValueError

    for n_threads in (0, 2):
        with pytest.raises(KeyboardInterrupt):
            list(map_ahead(work, range(3), n_threads=n_threads, n_ahead=2))
        assert ours() == []


def test_an_unfinished_iteration_does_not_keep_the_process() -> None:
    """Results that weigh too much must hold no thread: Python joins them all at its end."""
    code = (
        "from jmm.ahead import map_ahead\n"
        "import itertools\n"
        "results = map_ahead(str, itertools.count(), n_threads=2, n_ahead=40,\n"
        "    weigh=lambda held: 1 if isinstance(held, str) else 0, max_weight=3)\n"
        "print(next(results), flush=True)\n"
        "import time; time.sleep(0.3)\n"
        "raise ValueError('of the user')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stdout) == (1, "0\n")
    assert done.stderr.endswith("ValueError: of the user\n")


def test_what_was_left_is_begun_again_by_threads() -> None:
    """Once results have gone, threads go on with what they had left."""
    here, threads = threading.get_ident(), []

    def work(i: int) -> str:
        threads.append(threading.get_ident())
        time.sleep(0.002)
        return str(i)

    results = map_ahead(
        work,
        range(200),
        n_threads=2,
        n_ahead=20,
        weigh=lambda held: 1 if isinstance(held, str) else 0,
        max_weight=4,
    )
    found = []
    for result in results:
        time.sleep(0.004)
        found.append(result)
    assert found == [str(i) for i in range(200)]
    assert sum(thread != here for thread in threads) > 100
