"""One vision tower for many callers, whose pictures share its forwards."""

from __future__ import annotations

import copy
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from jmm import arguments
from jmm.errors import ForkedProcessError, InputError, JmmError, OutOfMemoryError
from jmm.images import ImageSource
from jmm.integrations.rows import encode_each
from jmm.pictures import VisionTokens
from jmm.vision import VisionEncoder

Request = tuple[ImageSource, "Future[VisionTokens]"]
Requests = queue.SimpleQueue["Request | None"]


class VisionService:
    """A vision tower that gathers the pictures of many callers and encodes them together.

    Safe to use from any number of threads; `encode` blocks its caller alone. A bad picture is an
    error for the caller that sent it and for nobody else. Not picklable: make it where it runs.
    After a DecodeError of the tower itself every further picture is an error: make another.

    Args:
        load: Gives the VisionEncoder, which the service owns:
            ``functools.partial(VisionEncoder, mmproj)``.
        max_batch_size: Most pictures that are encoded together.
        max_wait_s: Longest time that the first picture of a batch waits for others, in seconds.
            While a batch runs, the next one gathers without a limit of time.

    Raises:
        InputError: An argument is not allowed.
        ModelLoadError: The tower cannot be loaded.

    Example:
        >>> import functools
        >>> import numpy as np
        >>> from jmm import demo
        >>> load = functools.partial(VisionEncoder, demo.paths()[1])
        >>> with VisionService(load) as service:
        ...     service.encode(np.zeros((56, 84, 3), np.uint8))
        VisionTokens(tokens=12, dim=256, grid=6x8)
    """

    def __init__(
        self,
        load: Callable[[], VisionEncoder],
        *,
        max_batch_size: int = 16,
        max_wait_s: float = 0.005,
    ) -> None:
        size = arguments.whole("max_batch_size", max_batch_size, 1)
        if not isinstance(max_wait_s, int | float) or not 0 <= max_wait_s < threading.TIMEOUT_MAX:
            raise InputError(f"max_wait_s is {max_wait_s!r}; seconds from 0 on are needed")
        encoder = load() if callable(load) else None
        if not hasattr(encoder, "encode"):
            raise InputError(
                f"load is {load!r}; what gives a VisionEncoder is needed, such as "
                "functools.partial(VisionEncoder, mmproj)"
            )
        self._lock = threading.RLock()  # a signal's handler may submit, too
        requests: Requests = queue.SimpleQueue()
        self._requests = requests
        # The thread holds no reference to the service, so that a forgotten one ends it.
        self._thread = threading.Thread(
            target=_serve,
            args=(encoder, requests, size, max_wait_s),
            name="jmm-vision",
            daemon=True,
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            with encoder:
                raise OutOfMemoryError(f"a thread cannot be started ({error})") from None
        self._end = weakref.finalize(self, _finish, requests, self._thread)

    def __enter__(self) -> VisionService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answers what was submitted and frees the tower; further calls raise InputError.

        Called by a future's callback, which runs in the service's own thread, it does not wait.
        """
        with self._lock:
            end = self._end.detach()
            if end is not None:
                self._requests.put(None)
        if self._thread is not threading.current_thread():  # as in a future's callback
            self._thread.join()

    def submit(self, image: ImageSource) -> Future[VisionTokens]:
        """Hands a picture in, and returns at once.

        Args:
            image: See `Embedder.encode_images`; leave it as it is until the future is done.

        Returns:
            What `encode` gives or raises; ``cancel()`` works until its batch begins.

        Raises:
            InputError: The service is closed.
            ForkedProcessError: It was made before this process was forked.
        """
        with self._lock:
            if not self._end.alive:
                raise InputError("the vision service is closed; make another")
            if not self._thread.is_alive():
                raise ForkedProcessError(
                    "the vision service was made before a fork; make one in the child process"
                )
            future: Future[VisionTokens] = Future()
            self._requests.put((image, future))
            return future

    def encode(self, image: ImageSource) -> VisionTokens:
        """Encodes one picture, together with those of other callers.

        Args:
            image: See `Embedder.encode_images`.

        Returns:
            VisionTokens: The bits of `VisionEncoder.encode`.

        Raises:
            InputError: It is no readable picture, the service is closed, or a future's callback
                calls, which would wait for its own thread.
            NonFiniteError: The tower gave NaN or infinity.
        """
        if self._thread is threading.current_thread():
            raise InputError(
                "encode() would wait for the thread that it is called in, the service's own; "
                "submit() in a future's callback"
            )
        return self.submit(image).result()


def _finish(requests: Requests, thread: threading.Thread) -> None:
    requests.put(None)
    if thread is not threading.current_thread():
        thread.join()


def _serve(encoder: VisionEncoder, requests: Requests, size: int, wait_s: float) -> None:
    with encoder:
        more = True
        while more:
            more = _answer(encoder, *_gather(requests, size, wait_s))


def _gather(requests: Requests, size: int, wait_s: float) -> tuple[list[Request], bool]:
    """The next requests, and whether more may come: None is the last thing in the queue."""
    first = requests.get()
    if first is None:
        return [], False
    batch = [first]
    deadline = time.monotonic() + wait_s
    while len(batch) < size:
        try:
            request = requests.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if request is None:
            return batch, False
        batch.append(request)
    return batch, True


def _answer(encoder: VisionEncoder, batch: list[Request], more: bool) -> bool:
    wanted = [request for request in batch if request[1].set_running_or_notify_cancel()]
    for (_, future), result in zip(wanted, _encode(encoder, wanted), strict=True):
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
    return more


def _encode(encoder: VisionEncoder, batch: list[Request]) -> list[Any]:
    images = [image for image, _ in batch]
    try:
        return encode_each(encoder.encode, images, lambda tokens: tokens is None)
    except Exception as error:
        if isinstance(error, JmmError):
            error.index = None
        return [copy.copy(error) for _ in batch]  # each caller's traceback is its own
