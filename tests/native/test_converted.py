"""A converted jina-embeddings-v4 gives the contract's vectors, for every task, without torch."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError, VisionEncoder
from jmm.bundle import open_bundle
from jmm.convert import convert
from support import checkpoint, jina_calls, tiny

COMPONENT = 2e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny.MODELS[jina_calls.MODEL]
    return checkpoint.write(model, tmp_path_factory.mktemp("jina") / "jina", checkpoint.JINA)


def largest_difference(embedder: Embedder, task: str, as_task: str) -> float:
    """Between what a task gives and what another task should give."""
    return max(
        float(np.abs(jina_calls.ENCODE[call](embedder, task=task, multi_vector=many) - right).max())
        for (of, call, many), right in jina_calls.load().items()
        if of == as_task
    )


def test_golden_file_is_complete() -> None:
    calls = {(task, call) for task in checkpoint.TASKS for call in jina_calls.ENCODE}
    assert set(jina_calls.load()) == {(*key, many) for key in calls for many in (False, True)}


def test_separate_adapters(folder: Path, tmp_path: Path) -> None:
    out = convert(folder, tmp_path / "out")
    with Embedder(out, n_threads=1) as embedder:
        assert embedder.info["tasks"] == tuple(checkpoint.TASKS)
        assert embedder.multi_vector_dim == checkpoint.PROJECTOR_DIM
        for task in checkpoint.TASKS:
            assert largest_difference(embedder, task, task) <= COMPONENT
        assert largest_difference(embedder, "code", "retrieval") > 0.01


@pytest.mark.parametrize("task", checkpoint.TASKS)
def test_merged_adapter(task: str, folder: Path, tmp_path: Path) -> None:
    with Embedder(convert(folder, tmp_path / "out", merge=task), n_threads=1) as embedder:
        assert largest_difference(embedder, task, task) <= COMPONENT
        assert embedder.info["tasks"] == (task,)
        with pytest.raises(InputError, match="task is 'another'"):
            embedder.encode_query("a", task="another")


def test_without_adapters_the_vectors_are_others(folder: Path, tmp_path: Path) -> None:
    bundle = open_bundle(convert(folder, tmp_path / "out", use_adapters=False))
    with Embedder(**bundle.arguments, n_threads=1) as embedder:
        assert largest_difference(embedder, "code", "code") > 0.01


@pytest.mark.parametrize("kind", ["bf16", "q8_0", "f16"])
def test_smaller_types(kind: str, folder: Path, tmp_path: Path) -> None:
    types = {"text_type": kind, "vision_type": kind, "adapter_type": kind}
    bundle = open_bundle(convert(folder, tmp_path / "out", **types))
    with Embedder(**bundle.arguments, n_threads=1) as embedder:
        for task in checkpoint.TASKS:
            assert 0 < largest_difference(embedder, task, task) < 0.05


def test_a_folder_is_a_model(folder: Path, tmp_path: Path) -> None:
    out = convert(folder, tmp_path / "out")
    manifest = json.loads((out / "jmm.json").read_text())
    with Embedder(str(out), n_threads=1) as embedder:
        copy = pickle.loads(pickle.dumps(embedder))
        np.testing.assert_array_equal(copy.encode_query("a"), embedder.encode_query("a"))
        assert embedder.profile.name == "jina-embeddings-v4"
        assert embedder.profile.dims == tuple(manifest["dims"])
        assert embedder.info["max_pixels"] == manifest["max_pixels"]
    with Embedder(out, n_threads=1, max_pixels=56 * 56) as embedder:
        assert embedder.info["max_pixels"] == 56 * 56
    for given in ({"mmproj": out / "mmproj.gguf"}, {"adapters": {}}):
        with pytest.raises(InputError, match="pass the folder alone"):
            Embedder(out, **given)
    with pytest.raises(ModelLoadError, match="this is no file"):
        Embedder(tmp_path)


def test_the_tower_of_a_folder(folder: Path, tmp_path: Path) -> None:
    """Its files and limits, as `Embedder` takes them; what the caller gives comes first."""
    out = convert(folder, tmp_path / "out", max_pixels=28 * 28 * 6)
    page = tiny.pixels(140, 140, 0)
    with VisionEncoder(out, n_threads=1) as encoder, Embedder(out, n_threads=1) as embedder:
        assert encoder.info["max_pixels"] == embedder.info["max_pixels"] == 28 * 28 * 6
        tokens = encoder.encode(page)
        np.testing.assert_array_equal(embedder.encode_images(tokens), embedder.encode_images(page))
    with VisionEncoder(out, n_threads=1, max_pixels=28 * 28 * 4) as encoder:
        assert encoder.info["max_pixels"] == 28 * 28 * 4
    for name in ("min_pixels", "max_pixels"):
        for load in (Embedder, VisionEncoder):
            with pytest.raises(InputError, match=f"{name} is 0"):
                load(out, **{name: 0})
    for load in (Embedder, VisionEncoder):
        with pytest.raises(InputError, match="profile is ''"):
            load(out, profile="")
