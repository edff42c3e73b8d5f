"""Model files that are replaced, deleted or written over while a model is loaded, and odd paths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, ModelLoadError, OutOfMemoryError, VisionEncoder, memory

Files = tuple[Path, Path]

PICTURE = np.random.default_rng(0).integers(0, 256, (84, 112, 3), np.uint8)


@pytest.fixture
def copies(tiny_files: Callable[..., Files], tmp_path: Path) -> Files:
    text, mmproj = tiny_files("qwen25_small")
    return Path(shutil.copy(text, tmp_path)), Path(shutil.copy(mmproj, tmp_path))


def vectors(embedder: Embedder) -> np.ndarray:
    texts = embedder.encode_document(["hello world", "hello " * 40])
    return np.concatenate([texts, embedder.encode_images([PICTURE])])


def renamed_over(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"no model")
    other.replace(path)


def written_over(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def cut(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("change", [renamed_over, Path.unlink])
def test_a_mapped_file_lives_on(copies: Files, change: Callable[[Path], object]) -> None:
    with Embedder(*copies, n_threads=1) as embedder:
        before = vectors(embedder)
        for path in copies:
            change(path)
        np.testing.assert_array_equal(vectors(embedder), before)


@pytest.mark.parametrize("change", [written_over, cut])
def test_a_file_that_was_read(copies: Files, change: Callable[[Path], object]) -> None:
    with Embedder(*copies, n_threads=1) as mapped:
        wanted = vectors(mapped)
    with Embedder(*copies, n_threads=1, use_mmap=False) as embedder:
        for path in copies:
            change(path)
        np.testing.assert_array_equal(vectors(embedder), wanted)


@pytest.mark.parametrize("change", [written_over, cut])
def test_the_tower_is_always_read(copies: Files, change: Callable[[Path], object]) -> None:
    with VisionEncoder(copies[1], n_threads=1) as encoder:
        before = encoder.encode(PICTURE).values
        change(copies[1])
        np.testing.assert_array_equal(encoder.encode(PICTURE).values, before)


def test_links(copies: Files, tmp_path: Path) -> None:
    links = [tmp_path / "text.gguf", tmp_path / "tower.gguf"]
    for link, path in zip(links, copies, strict=True):
        link.symlink_to(path)
    with Embedder(*links, n_threads=1) as embedder, Embedder(*copies, n_threads=1) as plain:
        before = vectors(embedder)
        np.testing.assert_array_equal(before, vectors(plain))
        for link in links:
            link.unlink()
            link.symlink_to("/dev/null")
        np.testing.assert_array_equal(vectors(embedder), before)


def dangling(folder: Path) -> Path:
    (folder / "link").symlink_to("none.gguf")
    return folder / "link"


def looping(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.gguf")
    return folder / "pipe.gguf"


ODD = [
    (dangling, "there is no such file"),
    (looping, "there is no such file|cannot be opened"),
    (pipe, "this is no file"),
    (lambda _: Path("/dev/zero"), "this is no file"),
    (lambda folder: folder, "this is no file"),
    (lambda folder: folder / ("x" * 300), "cannot be opened|there is no such file"),
    (lambda _: "a\0b.gguf", "cannot be opened|there is no such file"),
    (lambda _: "", "this is no file|there is no such file"),
]


@pytest.mark.parametrize(("make", "message"), ODD)
def test_odd_paths(
    make: Callable[[Path], str | Path], message: str, tmp_path: Path, copies: Files
) -> None:
    path = make(tmp_path)
    with pytest.raises(ModelLoadError, match=message):
        Embedder(path)
    with pytest.raises(ModelLoadError, match=message):
        Embedder(copies[0], path)
    with pytest.raises(ModelLoadError, match=message):
        VisionEncoder(path)


def test_a_name_that_is_no_text(copies: Files, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"mod\xffel \xe2\x82\xac.gguf")
    copies[0].rename(path)
    with Embedder(path, copies[1], n_threads=1) as embedder:
        assert vectors(embedder).shape == (3, 64)


def test_weights_that_cannot_fit(copies: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [path.stat().st_size for path in copies]
    monkeypatch.setattr(memory, "available", lambda: sizes[1] - 1)
    for load in (lambda: Embedder(*copies), lambda: VisionEncoder(copies[1])):
        with pytest.raises(OutOfMemoryError, match="the files to read take"):
            load()
    monkeypatch.setattr(memory, "available", lambda: sum(sizes) - 1)
    with pytest.raises(OutOfMemoryError, match="the files to read take"):
        Embedder(*copies, use_mmap=False)
