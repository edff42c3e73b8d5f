"""Threads share an engine, or have one each, and get what one thread alone gets."""

from __future__ import annotations

import asyncio
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError
from subprocess_case import run
from support import tiny
from support.loops import turns_beside

N_THREADS = 8
TEXTS = [f"a text of number {i} " * (1 + i % 5) for i in range(24)]
PICTURES = [tiny.pixels(56 + 20 * i, 100, i) for i in range(5)]


def vectors(embedder: Embedder, rounds: int = 1) -> np.ndarray:
    """Every item in a call of its own, texts and pictures in turn."""
    items = [*TEXTS, *PICTURES] * rounds
    return np.stack([embedder.encode_document(item) for item in items])


def in_threads(*embedders: Embedder) -> list[np.ndarray]:
    with ThreadPoolExecutor(len(embedders)) as pool:
        return list(pool.map(vectors, embedders))


def test_eight_threads_share_an_engine() -> None:
    with Embedder(n_threads=2) as embedder:
        alone = vectors(embedder)
        for result in in_threads(*[embedder] * N_THREADS):
            np.testing.assert_array_equal(result, alone)
        np.testing.assert_array_equal(vectors(embedder), alone)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has its GIL"
)
def test_the_import_brings_no_gil_back() -> None:
    assert run("print(sys._is_gil_enabled())") == ["False"]


def test_the_executor_of_an_event_loop() -> None:
    """The loop goes on while its calls compute; one that fails fails alone."""
    items = [*TEXTS, *PICTURES]

    async def gather(embedder: Embedder) -> tuple[list[Any], int]:
        calls = [asyncio.to_thread(embedder.encode_document, item) for item in [*items, ""]]
        return await turns_beside(asyncio.gather(*calls, return_exceptions=True))

    with Embedder(n_threads=1) as embedder:
        alone = vectors(embedder)
        found, turns = asyncio.run(gather(embedder))
    np.testing.assert_array_equal(found[:-1], alone)
    assert isinstance(found[-1], InputError)
    assert turns > len(items)


def test_two_engines_in_two_threads(tiny_files) -> None:  # type: ignore[no-untyped-def]
    with (
        Embedder(*tiny_files("qwen25_small"), n_threads=2) as one,
        Embedder(*tiny_files("qwen2_small"), n_threads=2) as other,
    ):
        alone = [vectors(one), vectors(other)]
        assert np.abs(alone[0] - alone[1]).max() > 0.1
        for _ in range(2):
            np.testing.assert_array_equal(in_threads(one, other), alone)


def test_close_while_others_encode() -> None:
    lines = run(
        """
def work():
    try:
        while True:
            n_calls.append(np.isfinite(call()).all())
    except InputError as error:
        ends.append(str(error))

for k in range(4):
    embedder = Embedder(n_threads=2)
    call = [
        lambda: embedder.encode_query(TEXT),
        lambda: embedder.encode_query(["a", "b"] * 20),
        lambda: embedder.encode_patches(PATCHES, GRID),
        lambda: embedder.encode_document(["a", tiny.picture(20, 20)]),
    ][k]
    n_calls, ends = [], []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(n_calls) < 4:
        time.sleep(0.01)
    embedder.close()
    n_at_close = len(n_calls)
    for thread in threads:
        thread.join()
    # a call that had its result when the engine closed may still hand it over
    print(all(n_calls), len(n_calls) - n_at_close <= 4, len(ends), *set(ends))
"""
    )
    assert lines == ["True True 4 the model is closed"] * 4


def test_use_after_close() -> None:
    lines = run(
        """
embedder = Embedder(n_threads=2)
engine = embedder._engine
sequence = engine.tokenize([("a", False)])
picture = embedder._engine.tokenize([(PATCHES, *GRID[1:])])
pooled = np.empty((1, embedder.dim), np.float32)
for _ in range(2):
    embedder.close()
for use in (
    engine.check,
    lambda: engine.tokenize([("a", False)]),
    lambda: engine.forward([sequence], [(0, 1)], pooled),
    lambda: engine.encode_vision(picture.pictures),
    lambda: embedder.encode_query("a"),
    lambda: embedder.encode_patches(PATCHES, GRID),
):
    print(raised(use))
print(embedder.dim, embedder.info["dim"], sequence.n_tokens, sequence.token_ids() is not None)
"""
    )
    assert lines == ["InputError"] * 6 + ["256 256 1 True"]


def test_collected_in_any_order() -> None:
    """Engines, sequences and results die in every order, in threads and in cycles."""
    lines = run(
        """
import itertools
gc.set_threshold(1)
before = n_tasks()
wanted = Embedder(n_threads=1).encode_query("a")
for order in itertools.permutations(range(3)):
    embedder = Embedder(n_threads=2)
    sequence = embedder._engine.tokenize([(PATCHES[:16], 4, 4)])
    things = [embedder, embedder._engine, sequence]
    del embedder, sequence
    for i in order:
        things[i] = None
        gc.collect()

def work():
    for i in range(4):
        embedder = Embedder(n_threads=1)
        embedder.itself = embedder
        embedder.sequence = embedder._engine.tokenize([("a", False)])
        equal.append(np.array_equal(embedder.encode_query("a"), wanted))

equal = []
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    gc.collect()
    thread.join()
gc.collect()
print(len(equal), all(equal), len(_core._engines))
print(n_tasks() - before)
"""
    )
    assert lines == ["16 True 0", "0"]
