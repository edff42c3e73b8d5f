"""A tower as a service: the bits of an Embedder for every caller, and errors of its own alone."""

from __future__ import annotations

import functools
import gc
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, ForkedProcessError, InputError, OutOfMemoryError, VisionEncoder
from jmm.integrations import VisionService
from subprocess_case import run
from support import tiny

NAME = "qwen25_small"
OPTIONS: dict[str, Any] = {"profile": "jina-embeddings-v4", "n_threads": 1}
PICTURES = [tiny.picture(4 + 2 * (i % 5), 4 + 2 * (i % 3), i) for i in range(40)]
LIMIT = 60  # seconds until a test gives a thread up


@pytest.fixture(scope="module")
def paths(tiny_files: Callable[..., tuple[Path, Path]]) -> tuple[Path, Path]:
    return tiny_files(NAME)


@pytest.fixture(scope="module")
def load(paths: tuple[Path, Path]) -> Callable[[], VisionEncoder]:
    return functools.partial(VisionEncoder, paths[1], **OPTIONS)


@pytest.fixture
def service(load: Callable[[], VisionEncoder]) -> Iterator[VisionService]:
    with VisionService(load) as service:
        yield service


def test_many_callers(paths: tuple[Path, Path], service: VisionService) -> None:
    """Vectors have the Embedder's bits; the corrupt picture is its caller's error alone."""
    with Embedder(*paths, **OPTIONS) as whole:
        right = whole.encode_images(PICTURES)
    sources: list[Any] = [*PICTURES[:20], b"no picture", *PICTURES[20:]]
    with (
        Embedder(*paths, load_vision=False, **OPTIONS) as embedder,
        ThreadPoolExecutor(8) as callers,
    ):
        futures = [
            callers.submit(lambda source: embedder.encode_images(service.encode(source)), source)
            for source in sources
        ]
        with pytest.raises(InputError, match="no picture that Pillow knows") as caught:
            futures.pop(20).result(LIMIT)
        assert caught.value.index is None
        np.testing.assert_array_equal([future.result(LIMIT) for future in futures], right)


class Slow:
    """A tower whose first batch waits, and that keeps the sizes of all."""

    def __init__(self, encoder: VisionEncoder) -> None:
        self._encoder = encoder
        self.begun, self.go = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        self.open = True

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
        self._encoder.close()

    def encode(self, images: list[Any], *, on_error: Any) -> Any:
        self.sizes.append(len(images))
        self.begun.set()
        assert self.go.wait(LIMIT)
        return self._encoder.encode(images, on_error=on_error)


@pytest.fixture
def slow(load: Callable[[], VisionEncoder]) -> Slow:
    return Slow(load())


def test_what_comes_while_a_batch_runs_goes_together(slow: Slow) -> None:
    with VisionService(lambda: slow, max_batch_size=6, max_wait_s=0) as service:  # type: ignore[arg-type, return-value]
        futures = [service.submit(PICTURES[0])]
        assert slow.begun.wait(LIMIT)
        futures += [service.submit(picture) for picture in PICTURES[1:11]]
        assert futures[4].cancel()
        slow.go.set()
        with pytest.raises(CancelledError):
            futures.pop(4).result(LIMIT)
        for future in futures:
            future.result(LIMIT)
    assert slow.sizes == [1, 5, 4]


def test_the_first_waits_for_others(slow: Slow) -> None:
    slow.go.set()
    with VisionService(lambda: slow, max_batch_size=3, max_wait_s=LIMIT) as service:  # type: ignore[arg-type, return-value]
        futures = [service.submit(picture) for picture in PICTURES[:3]]
        for future in futures:
            future.result(LIMIT)
    assert slow.sizes == [3]


def test_close_answers_what_was_submitted(slow: Slow) -> None:
    service = VisionService(lambda: slow, max_batch_size=2)  # type: ignore[arg-type, return-value]
    futures = [service.submit(picture) for picture in PICTURES[:5]]
    slow.go.set()
    service.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert not slow.open
    service.close()
    with pytest.raises(InputError, match="closed"):
        service.encode(PICTURES[0])


def test_a_tower_that_fails_tells_every_caller(slow: Slow) -> None:
    slow._encoder.close()
    slow.go.set()
    with VisionService(lambda: slow, max_batch_size=2, max_wait_s=LIMIT) as service:  # type: ignore[arg-type, return-value]
        futures = [service.submit(picture) for picture in PICTURES[:2]]
        for future in futures:
            with pytest.raises(InputError, match="closed"):
                future.result(LIMIT)


def test_callbacks_run_in_the_thread_of_the_service(slow: Slow) -> None:
    service = VisionService(lambda: slow)  # type: ignore[arg-type, return-value]
    found: queue.Queue[object] = queue.Queue()

    def use(_: object) -> None:
        try:
            service.encode(PICTURES[1])
        except InputError as error:
            found.put(error)
        found.put(service.submit(PICTURES[1]))
        service.close()
        found.put("closed")

    service.submit(PICTURES[0]).add_done_callback(use)
    slow.go.set()
    assert "would wait for the thread" in str(found.get(timeout=LIMIT))
    later = found.get(timeout=LIMIT)
    assert found.get(timeout=LIMIT) == "closed"
    assert isinstance(later, Future)
    assert later.result(LIMIT) is not None
    service.close()


@pytest.mark.parametrize("load", [5, lambda: 5, lambda: None])
def test_what_loads_no_tower(load: Any) -> None:
    with pytest.raises(InputError, match="what gives a VisionEncoder is needed"):
        VisionService(load)


def test_no_thread_to_be_had(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(OutOfMemoryError, match="a thread cannot be started"):
            VisionService(lambda: slow)  # type: ignore[arg-type, return-value]
    assert not slow.open


def test_a_handler_submits_while_its_thread_does(load: Any) -> None:
    with VisionService(load) as service, service._lock:  # as a signal's handler would find it
        assert service.submit(PICTURES[0]).result(LIMIT) is not None


def test_a_forgotten_service_ends(slow: Slow) -> None:
    slow.go.set()
    service = VisionService(lambda: slow)  # type: ignore[arg-type, return-value]
    thread = service._thread
    service.encode(PICTURES[0])
    del service
    gc.collect()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert not slow.open


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_batch_size": 0},
        {"max_wait_s": -1.0},
        {"max_wait_s": "1"},
        {"max_wait_s": float("nan")},
    ],
)
def test_what_is_not_allowed(arguments: dict[str, Any], load: Callable[[], VisionEncoder]) -> None:
    with pytest.raises(InputError):
        VisionService(load, **arguments)


def test_the_interpreter_ends_with_an_open_service(paths: tuple[Path, Path]) -> None:
    code = (
        "import functools, numpy as np\n"
        "from jmm import VisionEncoder\n"
        "from jmm.integrations import VisionService\n"
        f"service = VisionService(functools.partial(VisionEncoder, {str(paths[1])!r}))\n"
        "print(service.encode(np.zeros((56, 56, 3), np.uint8)).grid)\n"
    )
    assert run(code)[-1].startswith("(")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(service: VisionService) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            service.encode(PICTURES[0])
        except ForkedProcessError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
