"""The name that stored vectors are kept under: what changes it, and what must change it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from exactness import needs_panel
from jmm import Embedder, InputError
from jmm.files import read_header
from jmm.fingerprint import VECTORS
from jmm.projector import BIAS, WEIGHT
from jmm.search.identity import Identity
from support import gguf_writer, tiny

Files = tuple[Path, Path]

STORED = Path(__file__).parents[1] / "golden" / f"vectors-{VECTORS}.npz"
TEXTS = ["a red circle", "blue stripes " * 20, "Ünïcode 日本語 🙂"]


def fingerprint(*files: Path, **options: Any) -> str:
    with Embedder(*files, n_threads=1, **options) as embedder:
        return str(embedder.info["vector_fingerprint"])


def test_the_same_for_a_copy_and_for_limits(
    tiny_files: Callable[..., Files], tmp_path: Path
) -> None:
    files = tiny_files("qwen25_small")
    plain = fingerprint(*files)
    assert len(plain) == 16
    assert int(plain, 16) >= 0
    copies = [Path(shutil.copy(file, tmp_path)) for file in files]
    assert fingerprint(*copies) == plain
    assert fingerprint(*files, n_ctx=400, n_batch=64, use_mmap=False) == plain


def test_another_for_all_that_moves_vectors(tiny_files: Callable[..., Files]) -> None:
    files = tiny_files("qwen25_small")
    other = tiny_files("qwen25_small", "F16")
    found = [
        fingerprint(*files),
        fingerprint(files[0]),
        fingerprint(other[0], files[1]),
        fingerprint(files[0], other[1]),
        fingerprint(*files, profile="jina-embeddings-v4"),
        fingerprint(*files, max_pixels=90_000),
        fingerprint(*files, min_pixels=60_000),
        fingerprint(*files, reference_modes=True),
        fingerprint(*files, f16_kv=True),
    ]
    assert len(set(found)) == len(found)


def changed(path: Path, folder: Path, pieces: dict[int, bytes]) -> Path:
    """A copy with other bytes at some places."""
    folder.mkdir()
    copy = Path(shutil.copy(path, folder))
    with copy.open("r+b") as file:
        for where, data in pieces.items():
            file.seek(where)
            file.write(data)
    return copy


def test_another_for_other_weights_of_the_same_types(
    tiny_files: Callable[..., Files], tmp_path: Path
) -> None:
    """All of a tensor but its end, or a fifteenth of it."""
    text, mmproj = tiny_files("qwen25_small")
    before = fingerprint(text, mmproj)
    header = read_header(text)
    start, end = header.starts["token_embd.weight"], header.ends["token_embd.weight"]
    for name, where, n_bytes in (("most", start, end - start - 64), ("part", start, end // 15)):
        other = changed(text, tmp_path / name, {where: bytes(n_bytes)})
        assert fingerprint(other, mmproj) != before
        with Embedder(text, mmproj) as one, Embedder(other, mmproj) as two:
            mine, theirs = Identity.of(one), Identity.of(two)
        with pytest.raises(InputError, match="made by another model"):
            mine.check(theirs)


@pytest.mark.parametrize("key", ["tokens", "merges"])
def test_another_for_another_vocabulary(
    key: str, tiny_files: Callable[..., Files], tmp_path: Path
) -> None:
    """Two words of one length in each other's place."""
    text, mmproj = tiny_files("qwen25_small")
    reader = gguf.GGUFReader(text)
    field = reader.fields[f"tokenizer.ggml.{key}"]
    words = [field.parts[index] for index in field.data]
    first, second = next(
        (one, two)
        for one, two in itertools.pairwise(words)
        if len(one) == len(two) and bytes(one) != bytes(two)
    )
    base = reader.data.ctypes.data
    places = {
        int(one.ctypes.data - base): bytes(two) for one, two in ((first, second), (second, first))
    }
    other = changed(text, tmp_path / "other", places)
    found = gguf.GGUFReader(other).fields[f"tokenizer.ggml.{key}"].contents()
    assert sorted(found) == sorted(field.contents())
    assert fingerprint(other, mmproj) != fingerprint(text, mmproj)


def test_another_for_a_version_of_jmm(
    tiny_files: Callable[..., Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tiny_files("qwen25_small")
    before = fingerprint(*files)
    monkeypatch.setattr("jmm.fingerprint.vector_fingerprint.__defaults__", (VECTORS + 1,))
    assert fingerprint(*files) != before


def test_another_for_a_projector(tmp_path: Path) -> None:
    with Embedder() as embedder:
        plain = embedder.info["vector_fingerprint"]
    rng = np.random.default_rng(0)
    tensors = {
        WEIGHT: (rng.standard_normal((128, 256)).astype(np.float32), "F32"),
        BIAS: (rng.standard_normal(128).astype(np.float32), "F32"),
    }
    path = gguf_writer.write_projector(tmp_path / "projector.gguf", tensors)
    assert fingerprint(projector=path) != plain


def test_an_index_of_another_version_is_refused() -> None:
    with Embedder() as embedder:
        mine = Identity.of(embedder)
    fields = mine.to_json()
    assert fields.pop("vectors") == VECTORS
    assert Identity.from_json(fields) == mine  # a record from before there were versions
    with pytest.raises(InputError, match=r"version of vectors: 2 in the index, 1 here"):
        Identity.from_json({**fields, "vectors": 2}).check(mine)


@needs_panel
def test_the_vectors_of_this_version() -> None:
    """Where this fails on purpose, raise `VECTORS` and run this file as a script."""
    stored = np.load(STORED)
    for name, found in vectors().items():
        np.testing.assert_allclose(found, stored[name], rtol=0, atol=2e-6, err_msg=name)


def vectors() -> dict[str, np.ndarray]:
    """Of the built-in model."""
    with Embedder(n_threads=1) as embedder:
        pictures = [tiny.picture(4 + 2 * i, 6, i) for i in range(4)]
        found = embedder.encode_document(TEXTS, multi_vector="both")
        return {
            "texts": found.pooled,
            "text_tokens": found.tokens.values,
            "pictures": embedder.encode_images(pictures),
            "queries": embedder.encode_query(TEXTS),
        }


if __name__ == "__main__":
    np.savez_compressed(STORED, **vectors())
