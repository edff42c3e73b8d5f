"""A vector depends on its item alone: not on sizes, threads, neighbours, order or the past.

Guards patches 0033 and 0034, and the order of tokens in patch 0020: without one of them last bits
follow the company.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import invariance
from exactness import COMPONENT, MOVED, needs_integers, needs_panel
from invariance import ITEMS, Vectors
from jmm import Embedder, _core
from support import tiny

Files = Callable[..., tuple[Path, Path]]
MODELS = ("qwen25_small", "qwen2_small")


@pytest.fixture(scope="module")
def alone(tiny_files: Files) -> Callable[[str], Vectors]:
    return lru_cache(lambda name: invariance.alone(*tiny_files(name)))


@pytest.fixture(scope="module")
def embedder(tiny_files: Files) -> Embedder:
    return invariance.embedder(*tiny_files("qwen25_small"), n_threads=2)


@pytest.mark.parametrize("company", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_ubatch", invariance.N_UBATCH)
def test_ubatch_and_threads(
    n_ubatch: int,
    n_threads: int,
    company: bool,
    tiny_files: Files,
    alone: Callable[[str], Vectors],
) -> None:
    for name in MODELS[:1] if company else MODELS:
        distance = invariance.moved(
            alone(name), *tiny_files(name), company=company, n_ubatch=n_ubatch, n_threads=n_threads
        )
        assert distance <= MOVED


@pytest.mark.parametrize("company", [False, True])
def test_batch_smaller_than_an_item(
    company: bool, tiny_files: Files, alone: Callable[[str], Vectors]
) -> None:
    for name in MODELS:
        distance = invariance.moved(
            alone(name), *tiny_files(name), company=company, n_batch=invariance.N_BATCH
        )
        assert distance <= MOVED


@needs_panel
@pytest.mark.parametrize("file_type", ["F16", "BF16", pytest.param("Q8_0", marks=needs_integers)])
def test_bits_of_each_file_type(file_type: str, tiny_files: Files) -> None:
    """What rounding there is does not magnify a last bit that company has moved."""
    files = tiny_files("qwen25_small", file_type)
    still = invariance.alone(*files)
    for sizes in ({}, {"n_ubatch": 1}, {"n_ubatch": 7}, {"n_batch": invariance.N_BATCH}):
        assert invariance.moved(still, *files, company=True, n_threads=2, **sizes) == 0


@pytest.mark.parametrize("n_threads", [1, 2])
def test_repeats_have_equal_bits(n_threads: int, tiny_files: Files) -> None:
    with invariance.embedder(*tiny_files("qwen25_small"), n_threads=n_threads) as model:
        together = model.encode_document(ITEMS)
        single = invariance.one_by_one(model)
        for _ in range(50):
            np.testing.assert_array_equal(model.encode_document(ITEMS), together)
        for _ in range(5):
            np.testing.assert_array_equal(invariance.one_by_one(model), single)


def test_order_and_past(embedder: Embedder, alone: Callable[[str], Vectors]) -> None:
    still = alone("qwen25_small")
    for _ in range(2):
        assert np.abs(embedder.encode_document(ITEMS[::-1])[::-1] - still).max() <= MOVED
        embedder.encode_document(invariance.others())
        assert np.abs(embedder.encode_document(ITEMS) - still).max() <= MOVED


def test_the_same_picture_twice(embedder: Embedder) -> None:
    for grid in ((2, 4), (16, 16), (28, 22)):
        picture = tiny.picture(*grid)
        first, text, second = embedder.encode_document([picture, "a text between", picture])
        assert np.abs(first - second).max() <= MOVED
        assert np.abs(first - embedder.encode_images(picture)).max() <= MOVED
        assert np.abs(first - text).max() > 1000 * COMPONENT


@pytest.mark.parametrize("neighbour_first", [False, True])
def test_neighbours_are_not_seen(neighbour_first: bool, tiny_files: Files) -> None:
    """Another content of the same length beside an item changes no bit of it."""
    engine = _core.Engine(*tiny_files("qwen25_small"), n_threads=1)

    def text(digit: str, n: int) -> _core.Sequence:
        return engine.tokenize([(digit * n, False)])

    def picture(seed: int) -> _core.Sequence:
        return engine.tokenize([(tiny.patches(tiny.picture(8, 12, seed)), 8, 12)])

    def states(item: _core.Sequence, neighbour: _core.Sequence) -> np.ndarray:
        pair = [neighbour, item] if neighbour_first else [item, neighbour]
        hidden = np.empty((item.n_tokens + neighbour.n_tokens, engine.n_embd), np.float32)
        pooled = np.empty((2, engine.n_embd), np.float32)
        engine.forward(pair, [(0, sequence.n_tokens) for sequence in pair], pooled, hidden)
        return hidden[-item.n_tokens :] if neighbour_first else hidden[: item.n_tokens]

    for item in (text("1", 5), text("2", 90), picture(0)):
        for one, other in ((text("3", 70), text("4", 70)), (picture(1), picture(2))):
            np.testing.assert_array_equal(states(item, one), states(item, other))
