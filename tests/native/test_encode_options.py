"""Precision, sizes and tasks of the encode methods: each is what its own function makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from jmm import (
    Embedder,
    InputError,
    ModelLoadError,
    OutOfMemoryError,
    VisionTokens,
    calibrate,
    pool_tokens,
    quantize,
)
from jmm.vectors import pooling
from support import extras, gguf_writer, golden, tiny

NAME = "qwen25_small"
MODEL = tiny.MODELS[NAME]
WEIGHTS = golden.weights(NAME)
PICTURES = [tiny.picture(4, 6, i) for i in range(5)]
TEXTS = [f"text number {i} of some" for i in range(40)]
PRECISIONS = ("int8", "uint8", "binary", "ubinary")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text.gguf with a projector, mmproj.gguf, and the adapters a.gguf and b.gguf."""
    folder = tmp_path_factory.mktemp("options")
    projector = extras.projector(MODEL)
    gguf_writer.write_text(MODEL, WEIGHTS, folder / "text.gguf", extra=projector.tensors())
    gguf_writer.write_mmproj(MODEL, WEIGHTS, folder / "mmproj.gguf")
    for seed, name in enumerate("ab"):
        pairs = extras.native_names(extras.adapter(MODEL, WEIGHTS, seed))
        gguf_writer.write_adapter(folder / f"{name}.gguf", pairs, alpha=extras.ALPHA)
    return folder


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    with Embedder(folder / "text.gguf", folder / "mmproj.gguf", n_threads=2) as embedder:
        yield embedder


def calls(embedder: Embedder) -> dict[str, Callable[..., np.ndarray]]:
    patches = np.concatenate([tiny.patches(picture) for picture in PICTURES])
    return {
        "query": lambda **options: embedder.encode_query(TEXTS, **options),
        "document": lambda **options: embedder.encode_document([*TEXTS, *PICTURES], **options),
        "images": lambda **options: embedder.encode_images(PICTURES, **options),
        "patches": lambda **options: embedder.encode_patches(patches, [[1, 4, 6]] * 5, **options),
        "one": lambda **options: embedder.encode_query(TEXTS[0], **options),
        "none": lambda **options: embedder.encode_query([], **options),
    }


@pytest.mark.parametrize("dim", [None, 16])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("method", ["query", "document", "images", "patches", "one", "none"])
def test_precision(method: str, precision: Any, dim: int | None, embedder: Embedder) -> None:
    """The codes of the float32 result of an equal call, which has equal bits."""
    call = calls(embedder)[method]
    right = call(truncate_dim=dim)
    ranges = calibrate(embedder.encode_query(TEXTS, truncate_dim=dim))
    options = {"ranges": ranges} if "int8" in precision else {}
    found = call(precision=precision, truncate_dim=dim, **options)
    wanted = quantize(np.atleast_2d(right), precision, options.get("ranges"))
    wanted = wanted[0] if right.ndim == 1 else wanted
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dim", [1, 16, 63, 64])
def test_truncated(dim: int, embedder: Embedder) -> None:
    whole = embedder.encode_query(TEXTS, normalize=False).astype(np.float64)
    cut = whole[:, :dim]
    found = embedder.encode_query(TEXTS, truncate_dim=dim, normalize=False)
    np.testing.assert_allclose(found, cut, rtol=1e-6, atol=1e-7)
    unit = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.encode_query(TEXTS, truncate_dim=dim), unit, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int8"}, "ranges=calibrate"),
        ({"precision": "uint8"}, "ranges=calibrate"),
        ({"precision": "int8", "ranges": np.ones((2, 63), np.float32)}, "ranges"),
        ({"precision": "int8", "ranges": np.ones((3, 64), np.float32)}, "ranges"),
        ({"precision": "int8", "ranges": np.full((2, 64), np.nan, np.float32)}, "ranges"),
        ({"precision": "int8", "ranges": "all"}, "ranges"),
        ({"ranges": np.ones((2, 64), np.float32)}, "ranges are for int8 and uint8"),
        ({"precision": "binary", "ranges": np.ones((2, 64), np.float32)}, "ranges are for int8"),
        ({"multi_vector": True, "ranges": "all"}, "ranges are for int8"),
        ({"normalize": "no"}, "normalize is 'no'"),
        ({"precision": "binary", "on_error": "nan"}, "has no NaN"),
        ({"precision": "int8", "on_error": "nan", "ranges": np.ones((2, 64))}, "has no NaN"),
        ({"precision": "binary", "multi_vector": True}, "multi_vector=True"),
        ({"precision": "float16"}, "precision is 'float16'"),
        ({"precision": None}, "precision is None"),
        ({"precision": ["int8"]}, "precision is"),
        ({"truncate_dim": 16, "multi_vector": True}, "not truncated"),
        ({"truncate_dim": 0}, "truncate_dim"),
        ({"truncate_dim": 65}, "truncate_dim"),
        ({"truncate_dim": 16.0}, "truncate_dim"),
        ({"truncate_dim": True}, "truncate_dim"),
        ({"task": []}, "task is"),
        ({"task": 0}, "task is 0"),
        ({"task": "unknown"}, "task is 'unknown'"),
        ({"task": {"retrieval"}}, "task is"),
    ],
)
@pytest.mark.parametrize("method", ["query", "document", "images", "patches"])
def test_refused(method: str, options: Any, message: str, embedder: Embedder) -> None:
    before = embedder._engine.n_rows
    with pytest.raises(InputError, match=message):
        calls(embedder)[method](**options)
    assert embedder._engine.n_rows == before  # nothing was computed for it


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pooled_tokens(factor: int, embedder: Embedder) -> None:
    """What `pool_tokens` makes of an equal call's tokens."""
    for encode, items in (
        (embedder.encode_images, PICTURES),
        (embedder.encode_document, [*TEXTS[:3], *PICTURES[:2]]),
    ):
        wanted = pool_tokens(encode(items, multi_vector=True), factor)
        found = encode(items, multi_vector=True, pool_factor=factor)
        np.testing.assert_array_equal(found.offsets, wanted.offsets)
        np.testing.assert_array_equal(found.values, wanted.values)
        one = encode(items[0], multi_vector=True, pool_factor=factor)
        assert one.shape == wanted[0].shape
    stream = embedder.encode_iter(PICTURES, multi_vector=True, pool_factor=factor)
    assert [len(rows) for rows in stream] == [
        len(rows)
        for rows in embedder.encode_images(PICTURES, multi_vector=True, pool_factor=factor)
    ]


def test_no_memory_to_pool_one_item(embedder: Embedder) -> None:
    real = pooling.ward_clusters

    def scarce(distances: np.ndarray, n: int) -> np.ndarray:
        if len(distances) > 20:
            raise MemoryError
        return real(distances, n)

    items = ["a", "word " * 30, "b"]
    options: Any = {"multi_vector": True, "pool_factor": 2}
    with mock.patch.object(pooling, "ward_clusters", scarce):
        for call in (
            lambda: embedder.encode_document(items, **options),
            lambda: list(embedder.encode_iter(items, **options)),
        ):
            with pytest.raises(OutOfMemoryError, match="tokens") as caught:
                call()
            assert caught.value.index == 1
        found = embedder.encode_document(items, **options, on_error="nan")
    right = embedder.encode_document(["a", "b"], **options)
    assert np.diff(found.offsets).tolist()[1] == 0
    np.testing.assert_array_equal(found.values, right.values)


def test_pooled_tokens_of_what_failed(embedder: Embedder) -> None:
    options: Any = {"multi_vector": True, "pool_factor": 2, "on_error": "nan"}
    found = embedder.encode_images([PICTURES[0], b"junk", PICTURES[1]], **options)
    right = embedder.encode_images(PICTURES[:2], multi_vector=True, pool_factor=2)
    np.testing.assert_array_equal(found.offsets, np.insert(right.offsets, 1, right.offsets[1]))
    np.testing.assert_array_equal(found.values, right.values)


@pytest.mark.parametrize("path", [".", "none.gguf", "mmproj.gguf", "a.gguf"])
def test_no_projector(path: str, folder: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"projector|no file|no such file"):
        Embedder(folder / "text.gguf", projector=folder / path)


@pytest.mark.parametrize("value", [3, ["p.gguf"], b"\0", "a\0b"])
def test_projector_of_no_path(value: Any, folder: Path) -> None:
    with pytest.raises((InputError, ModelLoadError)):
        Embedder(folder / "text.gguf", projector=value)


def test_a_huge_grid(embedder: Embedder) -> None:
    """Refused before anything is reserved for it."""
    values = np.broadcast_to(np.zeros((1, MODEL.hidden), np.float32), (3286 // 2, MODEL.hidden))
    tokens = VisionTokens(values, (2, 3286), str(embedder.info["fingerprint"]))
    with pytest.raises(InputError, match="3284"):
        embedder.encode_images(tokens)
    with pytest.raises(InputError):
        embedder.encode_patches(np.zeros((0, 1176), np.float32), [[1, 2**31, 2**31]])


def test_threads_of_different_tasks(folder: Path) -> None:
    """One embedder, many threads, each with its task: the bits of one thread alone."""
    adapters = {name: folder / f"{name}.gguf" for name in "ab"}
    paths = folder / "text.gguf", folder / "mmproj.gguf"
    with Embedder(*paths, adapters=adapters, n_threads=2) as embedder:
        plain: list[Callable[[str], Any]] = [
            lambda task: embedder.encode_query(TEXTS[1], task=task),
            lambda task: embedder.encode_images(PICTURES[0], task=task),
            lambda task: embedder.encode_query(TEXTS[2], task=task, multi_vector=True),
            lambda task: next(iter(embedder.encode_iter(TEXTS[3:4], task=task))),
        ]
        right = {task: [call(task) for call in plain] for task in "ab"}
        for one, other in zip(right["a"], right["b"], strict=True):
            assert np.abs(one - other).max() > 1e-3
        start = threading.Barrier(6)

        def work(i: int) -> list[Any]:
            start.wait(60)
            return [call("ab"[i % 2]) for _ in range(6) for call in plain]

        with ThreadPoolExecutor(6) as pool:
            for i, results in enumerate(pool.map(work, range(6))):
                for found, wanted in zip(results, right["ab"[i % 2]] * 6, strict=True):
                    np.testing.assert_array_equal(found, wanted)
