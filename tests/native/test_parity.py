"""The engine against the golden files: what transformers computed in double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import exactness
from exactness import Result
from jmm import Embedder, _core
from support import golden, tiny
from support.gguf_writer import FileType
from support.sequences import PASSAGE_PREFIX, QUERY_PREFIX, cosine, relative_error, worst_row_error

Run = Callable[..., Result]

ALL = [(name, record["key"]) for name in tiny.MODELS for record in golden.meta(name)["cases"]]
PICTURES = [
    (name, record["key"])
    for name in tiny.MODELS
    for record in golden.meta(name)["cases"]
    if record["grids"]
]
LOW_PRECISION: tuple[FileType, ...] = ("F16", "BF16", "Q8_0")
SOME_KEYS = ("sentence", "20x14", "2x40", "mixed")


@pytest.fixture(scope="module")
def run(tiny_files: Callable[..., tuple[Path, Path]]) -> Run:
    """``run(name, key, file_type="F32", f16_kv=False)``: each case is computed once."""

    @lru_cache
    def engine(name: str, file_type: FileType, f16_kv: bool) -> _core.Engine:
        return _core.Engine(*tiny_files(name, file_type), n_threads=1, f16_kv=f16_kv)

    @lru_cache
    def result(name: str, key: str, file_type: FileType = "F32", f16_kv: bool = False) -> Result:
        return exactness.run(engine(name, file_type, f16_kv), golden.load(name)[key])

    return result


@pytest.mark.parametrize(("name", "key"), ALL)
def test_ids(name: str, key: str, run: Run) -> None:
    case = golden.load(name)[key]
    pad = tiny.MODELS[name].vocab.id("<|image_pad|>")
    ids = run(name, key).ids
    np.testing.assert_array_equal(np.where(ids < 0, pad, ids), case.ids)


@pytest.mark.parametrize(("name", "key"), PICTURES)
def test_vision_tower(name: str, key: str, run: Run) -> None:
    vit = run(name, key).vit
    assert vit is not None
    assert relative_error(vit, golden.load(name)[key].vit) <= exactness.VIT


@pytest.mark.parametrize(("name", "key"), ALL)
def test_hidden_states(name: str, key: str, run: Run) -> None:
    case = golden.load(name)[key]
    hidden = run(name, key).hidden[case.rows]
    assert worst_row_error(hidden, case.hidden) <= exactness.row_tolerance(case)


@pytest.mark.parametrize(("name", "key"), ALL)
def test_pooled(name: str, key: str, run: Run) -> None:
    pooled = run(name, key).pooled
    assert np.abs(pooled - golden.load(name)[key].pooled).max() <= exactness.COMPONENT


@pytest.mark.parametrize("f16_kv", [False, True])
@pytest.mark.parametrize(("name", "key"), ALL)
def test_cosine(name: str, key: str, f16_kv: bool, run: Run) -> None:
    pooled = run(name, key, f16_kv=f16_kv).pooled
    assert cosine(pooled, golden.load(name)[key].pooled) >= exactness.COSINE


@pytest.mark.parametrize("file_type", LOW_PRECISION)
@pytest.mark.parametrize("name", tiny.MODELS)
def test_low_precision_is_finite_and_near(name: str, file_type: FileType, run: Run) -> None:
    for key in SOME_KEYS:
        result = run(name, key, file_type)
        assert np.isfinite(result.hidden).all()
        assert cosine(result.pooled, golden.load(name)[key].pooled) > 0.99


def test_jina_profile(tiny_name: str, tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    with Embedder(*tiny_files(tiny_name), profile="jina-embeddings-v4", n_threads=1) as embedder:
        for case in golden.load(tiny_name).values():
            for vector in _jina_vectors(embedder, case):
                assert np.abs(vector - case.pooled).max() <= exactness.COMPONENT


def _jina_vectors(embedder: Embedder, case: golden.Case) -> list[np.ndarray]:
    if case.kind == "text" and case.text:
        item = case.text.removeprefix(case.prefix)
        encode = {
            QUERY_PREFIX: embedder.encode_query,
            PASSAGE_PREFIX: embedder.encode_document,
        }.get(case.prefix)
        return [encode(item)] if encode and item else []
    if case.kind == "mixed":
        return []
    vectors = [embedder.encode_patches(case.patches(), [1, *case.grids[0]])]
    if case.grids != [(2, 2)]:  # below the processor's least area
        picture = case.images[0] if case.original is None else case.original
        vectors += [embedder.encode_images(picture), embedder.encode_document(picture)]
    return vectors


def test_plain_profile(tiny_name: str, tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    with Embedder(*tiny_files(tiny_name), profile="qwen2.5-vl", n_threads=1) as embedder:
        for case in golden.load(tiny_name).values():
            if case.text:
                for encode in (embedder.encode_query, embedder.encode_document):
                    difference = np.abs(encode(case.text) - case.pooled_all).max()
                    assert difference <= exactness.COMPONENT


@pytest.mark.parametrize(("name", "key"), PICTURES)
def test_mean_over_all_rows(name: str, key: str, run: Run) -> None:
    mean = run(name, key).hidden.mean(0, dtype=np.float64)
    difference = np.abs(mean / np.linalg.norm(mean) - golden.load(name)[key].pooled_all).max()
    assert difference <= exactness.COMPONENT


# What each mistake does to which value, and the least number of tolerances it lies beyond.
MISTAKES = {
    "padded_resize": ("component", 1000),
    "text_eps_0": ("hidden", 10),
    "vision_eps_0": ("vit", 10),
    "tanh_gelu": ("vit", 10),
    "mask_without_2d": ("hidden", 1000),
    "positions_1d": ("hidden", 1000),
    "pool_last_chunk": ("component", 1000),
}
TEXT_MISTAKES = ("text_eps_0",)
ONE_TOKEN_GRID = (2, 2)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_would_be_seen(mistake: str) -> None:
    """The distances were measured in transformers, when the golden files were made."""
    value, factor = MISTAKES[mistake]
    seen = 0
    for name in tiny.MODELS:
        for case in golden.load(name).values():
            if not _can_show(mistake, case):
                continue
            limits = {
                "vit": exactness.VIT,
                "hidden": exactness.row_tolerance(case),
                "component": exactness.COMPONENT,
            }
            assert case.distances[mistake][value] >= factor * limits[value], (name, case.key)
            seen += 1
    assert seen >= len(tiny.MODELS)


def _can_show(mistake: str, case: golden.Case) -> bool:
    if mistake not in case.distances or (not case.grids and mistake not in TEXT_MISTAKES):
        return False
    if mistake in ("mask_without_2d", "positions_1d"):
        return case.grids != [ONE_TOKEN_GRID]
    # 20 x 20 pixels become 56 x 56 either way
    return not (mistake == "padded_resize" and case.key == "resized_20x20")
