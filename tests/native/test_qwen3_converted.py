"""A Qwen3-VL checkpoint through `convert` and into the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from jmm import Embedder
from jmm.convert import convert
from jmm.errors import ModelLoadError
from support import family_calls, qwen3, qwen3_checkpoint

NAME = "Qwen3-VL-Embedding-2B"


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert")
    return convert(qwen3_checkpoint.write(folder / NAME, add_eos=True), folder / "out")


def contents(path: Path) -> dict[str, Any]:
    reader = gguf.GGUFReader(path)
    return {
        tensor.name: (tensor.tensor_type.name, tensor.data.tobytes()) for tensor in reader.tensors
    }


@pytest.mark.parametrize("file", ["text", "mmproj"])
def test_tensors(file: str, converted: Path, tmp_path: Path) -> None:
    write = {"text": qwen3.write_text, "mmproj": qwen3.write_mmproj}[file]
    right = write(qwen3.golden_weights(), tmp_path / "right.gguf")
    assert contents(converted / f"{file}.gguf") == contents(right)


def test_manifest(converted: Path, tmp_path: Path) -> None:
    manifest = json.loads((converted / "jmm.json").read_text())
    assert manifest["profile"] == "qwen3-vl-embedding"
    assert (manifest["min_pixels"], manifest["max_pixels"]) == (4096, 1_843_200)
    plain = convert(qwen3_checkpoint.write(tmp_path / "Qwen3-VL-2B"), tmp_path / "out")
    manifest = json.loads((plain / "jmm.json").read_text())
    assert manifest["profile"] == "qwen3-vl"
    assert (manifest["min_pixels"], manifest["max_pixels"]) == qwen3_checkpoint.LIMITS


def test_vectors(converted: Path, tmp_path: Path) -> None:
    """The same as of the files that the tests write themselves, the end token included."""
    weights = qwen3.golden_weights()
    text = qwen3.write_text(weights, tmp_path / "text.gguf", add_eos=True)
    mmproj = qwen3.write_mmproj(weights, tmp_path / "mmproj.gguf")
    with (
        Embedder(converted, min_pixels=1, n_threads=1) as ours,
        Embedder(text, mmproj, profile="qwen3-vl-embedding", min_pixels=1, n_threads=1) as right,
    ):
        for call in ("query", "document", "picture", "mixed"):
            assert ours.encode_query("a").shape == (qwen3.HIDDEN,)
            np.testing.assert_array_equal(
                family_calls.call(ours, call), family_calls.call(right, call)
            )
        ids = family_calls.trace(ours, "picture").ids
        assert ids[-1] == qwen3.vocab().id("<|endoftext|>")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("num_position_embeddings", 26),
        ("deepstack_visual_indexes", [2, 0]),
        ("deepstack_visual_indexes", [0, 4]),
    ],
)
def test_settings_that_are_not_served(key: str, value: Any, tmp_path: Path) -> None:
    source = qwen3_checkpoint.write(tmp_path / "in", **{key: value})
    with pytest.raises(ModelLoadError, match=key):
        convert(source, tmp_path / "out")
