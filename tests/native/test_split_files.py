"""A model in parts gives the vectors of the whole file, and is checked as one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, ModelLoadError
from jmm.convert import convert
from support import checkpoint, hostile, jina_calls, tiny
from support.split import split

PICTURE = np.arange(56 * 84 * 3, dtype=np.uint8).reshape(56, 84, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    model = tiny.MODELS[jina_calls.MODEL]
    out = convert(checkpoint.write(model, folder / "jina", checkpoint.JINA), folder / "out")
    split(out / "text.gguf", out / "text", 3)
    return out


def load(folder: Path, text: str) -> Embedder:
    adapters = {"code": folder / "adapter-code.gguf"}
    return Embedder(folder / text, folder / "mmproj.gguf", adapters=adapters, n_threads=1)


@pytest.fixture
def parts(folder: Path, tmp_path: Path) -> list[Path]:
    """A copy of the parts that a test may damage."""
    return [Path(shutil.copy(path, tmp_path)) for path in sorted(folder.glob("text-*"))]


def test_the_vectors_of_the_whole(folder: Path) -> None:
    with load(folder, "text.gguf") as whole, load(folder, "text-00001-of-00003.gguf") as parts:
        assert parts.multi_vector_dim == whole.multi_vector_dim == checkpoint.PROJECTOR_DIM
        for options in ({}, {"multi_vector": True}):
            for embedder_call in ("encode_query", "encode_images"):
                item = "a boat" if embedder_call == "encode_query" else PICTURE
                found, right = (
                    getattr(embedder, embedder_call)(item, **options) for embedder in (parts, whole)
                )
                np.testing.assert_array_equal(found, right)


def test_a_part_is_missing(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelLoadError, match=r"00002-of-00003\.gguf: there is no such file"):
        Embedder(parts[0])


def test_another_part_than_the_first(parts: list[Path]) -> None:
    with pytest.raises(ModelLoadError, match="it is one of 3 parts of a model; pass the first"):
        Embedder(parts[1])
    renamed = parts[0].rename(parts[0].with_name("text.gguf"))
    with pytest.raises(ModelLoadError, match=r"must end in -00001-of-00003\.gguf"):
        Embedder(renamed)


def test_a_later_part_is_checked(parts: list[Path]) -> None:
    raw = parts[1].read_bytes()
    parts[1].write_bytes(raw[:-1])
    with pytest.raises(ModelLoadError, match=r"00002-of-00003\.gguf: the file is cut short"):
        Embedder(parts[0])
    file = hostile.parse(raw)
    at = next(i for i, (kind, _) in enumerate(file.tensors[0]) if kind == "dtype")
    file.tensors[0][at] = ("dtype", (26).to_bytes(4, "little"))  # i32
    parts[1].write_bytes(file.bytes())
    with pytest.raises(ModelLoadError, match="has type i32"):
        Embedder(parts[0])
    shutil.copy(parts[2], parts[1])
    with pytest.raises(ModelLoadError, match="lies in another part"):
        Embedder(parts[0])
