"""Pictures that share a forward of the vision tower: each gets what it gets alone.

All of them guard patch 0020, without which the tower takes one picture at a time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exactness
import jmm
from jmm import _core
from support import golden, tiny
from support.sequences import Grid, relative_error
from support.tower import Tower

NAMES = ("qwen25_small", "qwen25_head80", "qwen2_small")
Picture = tuple[np.ndarray, int, int]
Engines = Callable[[str], _core.Engine]

# Within a window of 4 x 4 merged tokens, and a row or column of each width beside whole ones.
CLASSES = [(2 * h, 2 * w) for h, w in product((1, 2, 3, 4, 5, 7), (2, 4, 7))]


@pytest.fixture(scope="module")
def engines(tiny_files: Callable[..., tuple[Path, Path]]) -> Engines:
    @lru_cache
    def engine(name: str) -> _core.Engine:
        return _core.Engine(*tiny_files(name), n_threads=2)

    return engine


@lru_cache(maxsize=512)
def picture(grid: Grid, seed: int = 0) -> Picture:
    return tiny.patches(tiny.picture(*grid, seed=seed)), *grid


@lru_cache
def tower(name: str) -> Tower:
    return Tower(tiny.MODELS[name], golden.weights(name))


def check(engine: _core.Engine, pictures: list[Picture]) -> None:
    """Demands for each of many what it gives alone."""
    for (_, grid_h, grid_w), rows, item in zip(
        pictures, engine.encode_vision(pictures), pictures, strict=True
    ):
        (alone,) = engine.encode_vision([item])
        assert rows.shape == alone.shape == (grid_h * grid_w // 4, engine.n_embd_vision)
        difference = np.abs(rows - alone).max() / np.abs(alone).max()
        assert difference <= exactness.MOVED, (grid_h, grid_w)


def test_golden_pictures_together(tiny_name: str, engines: Engines) -> None:
    cases = [case for case in golden.load(tiny_name).values() if case.kind in ("image", "resized")]
    assert sum(h * w for case in cases for h, w in case.grids) > 3000
    pictures = [(case.patches(), *case.grids[0]) for case in cases]
    for case, rows in zip(cases, engines(tiny_name).encode_vision(pictures), strict=True):
        assert relative_error(rows, case.vit) <= exactness.VIT, case.key


@pytest.mark.parametrize("name", NAMES)
def test_equal_sizes(name: str, engines: Engines) -> None:
    for grid in ((2, 2), (4, 6), (20, 14)):
        check(engines(name), [picture(grid, seed) for seed in range(9)])


@pytest.mark.parametrize("name", NAMES)
def test_one_area_and_many_shapes(name: str, engines: Engines) -> None:
    grids = ((2, 48), (48, 2), (4, 24), (6, 16), (8, 12), (12, 8), (16, 6), (24, 4), (2, 48))
    check(engines(name), [picture(grid, seed) for seed, grid in enumerate(grids)])


@pytest.mark.parametrize("name", NAMES)
def test_more_sizes_and_patches_than_share_a_forward(name: str, engines: Engines) -> None:
    grids = [*CLASSES, (38, 30), (2, 2), (30, 38), (66, 64)]
    assert sum(h * w for h, w in grids[:-1]) < 4096 < 66 * 64
    check(engines(name), [picture(grid, seed) for seed, grid in enumerate(grids)])


@pytest.mark.parametrize("name", NAMES)
def test_order_is_kept(name: str, engines: Engines) -> None:
    one, other = picture((4, 6), 1), picture((16, 16), 2)
    items = [one, other, one, one, other, picture((4, 6), 3), one]
    outputs = engines(name).encode_vision(items)
    for item, rows in zip(items, outputs, strict=True):
        right = tower(name)(item[0], item[1:])
        assert relative_error(rows, right) <= exactness.VIT


def test_none(engines: Engines) -> None:
    assert engines(NAMES[0]).encode_vision([]) == []


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(
    grids=st.lists(
        st.tuples(st.integers(1, 13), st.integers(1, 13), st.integers(0, 3)), min_size=1, max_size=9
    )
)
def test_random_company(name: str, engines: Engines, grids: list[tuple[int, int, int]]) -> None:
    check(engines(name), [picture((2 * h, 2 * w), seed) for h, w, seed in grids])


def random_grids(count: int, longest: int) -> list[Grid]:
    sides = 2 * np.random.Generator(np.random.PCG64(20)).integers(1, longest // 2 + 1, (count, 2))
    return [(int(h), int(w)) for h, w in sides]


def check_right(name: str, engine: _core.Engine, grids: list[Grid]) -> None:
    """Demands what a dense mask gives, in company and alone."""
    pictures = [picture(grid, i % 7) for i, grid in enumerate(grids)]
    together = [
        rows
        for start in range(0, len(pictures), 12)
        for rows in engine.encode_vision(pictures[start : start + 12])
    ]
    for item, rows in zip(pictures, together, strict=True):
        right = tower(name)(item[0], item[1:])
        assert relative_error(rows, right) <= exactness.VIT, item[1:]
        assert relative_error(engine.encode_vision([item])[0], right) <= exactness.VIT, item[1:]


@pytest.mark.parametrize("name", NAMES)
def test_window_classes(name: str, engines: Engines) -> None:
    check_right(name, engines(name), CLASSES)


def test_random_sizes(engines: Engines) -> None:
    check_right("qwen25_small", engines("qwen25_small"), random_grids(40, 18))


@pytest.mark.slow
def test_a_thousand_sizes(engines: Engines) -> None:
    """Windows are 8 patches wide: every rest at both edges is there many times."""
    check_right("qwen25_small", engines("qwen25_small"), random_grids(1000, 20))


def forwards(call: Callable[[], object], caplog: pytest.LogCaptureFixture) -> list[int]:
    """Tokens of each forward of the tower, by the line that libmtmd logs for it."""
    caplog.clear()
    jmm.set_log_level("DEBUG")
    try:
        with caplog.at_level(logging.DEBUG, "jmm.native"):
            call()
    finally:
        jmm.set_log_level("WARNING")
    found = (
        re.search(r"clip_encode: output embedding shape \[\d+, (\d+), 1\]", line)
        for line in caplog.messages
    )
    return [int(match[1]) for match in found if match]


def test_they_share_forwards(engines: Engines, caplog: pytest.LogCaptureFixture) -> None:
    """Guards patch 0020 and how `_vision.pxi` fills a forward."""
    engine = engines("qwen25_small")

    def seen(*grids: Grid) -> list[int]:
        return forwards(lambda: engine.encode_vision([picture(grid) for grid in grids]), caplog)

    assert seen((4, 6)) == [6]
    assert seen(*[(4, 6)] * 64) == [6 * 64]
    assert seen((4, 6), (16, 16), (4, 4), (4, 6)) == [6 + 64 + 4 + 6]
    assert seen(*[(32, 32)] * 5) == [4 * 256, 256]  # 4,096 patches
    assert len(seen(*[(2, 2 * w) for w in range(1, 10)])) == 3  # 4 sizes each
    assert seen((66, 64)) == [66 * 16]


def test_documents_share_forwards(engines: Engines, caplog: pytest.LogCaptureFixture) -> None:
    """Pictures of several items, and of one item, run in one forward of the tower."""
    with jmm.Embedder(n_threads=2) as embedder:
        page = tiny.picture(6, 6)
        calls: dict[str, Callable[[], object]] = {
            "pictures": lambda: embedder.encode_images([page] * 8),
            "documents": lambda: embedder.encode_document([["a", page, "b", page]] * 4),
            "stream": lambda: list(embedder.encode_iter([page] * 8, kind="image")),
            "tower": lambda: embedder.encode_vision([page] * 8),
        }
        for name, call in calls.items():
            assert forwards(call, caplog) == [9 * 8], name


def test_company_as_shapes_change(engines: Engines) -> None:
    """One engine, calls of changing companies: nothing of a call is left in the next."""
    engine = engines("qwen25_head80")
    rng = np.random.Generator(np.random.PCG64(3))
    first = {grid: engine.encode_vision([picture(grid)])[0] for grid in CLASSES}
    for _ in range(10):
        chosen = [CLASSES[i] for i in rng.integers(0, len(CLASSES), rng.integers(1, 7))]
        engine.encode_vision([picture(grid) for grid in chosen])
        for grid, _ in groupby(sorted(chosen)):
            np.testing.assert_array_equal(engine.encode_vision([picture(grid)])[0], first[grid])
