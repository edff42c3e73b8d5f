"""What single patches of llama.cpp do, where the golden files alone would not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import exactness
from jmm import _core
from support import gguf_writer, golden, tiny
from support.sequences import worst_row_error

Files = Callable[..., tuple[Path, Path]]
QWEN25 = "qwen25_small"


def random_patches(n: int, seed: int = 0) -> np.ndarray:
    """Unlike a picture's, with two different frames."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.standard_normal((n, 1176)).astype(np.float32)


def vit(engine: _core.Engine, patches: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    return engine.encode_vision([(patches, *grid)])[0]


def test_flat_weight_equals_the_two_kernels(tiny_name: str, tiny_files: Files) -> None:
    kernels = _core.Engine(*tiny_files(tiny_name), n_threads=1)
    flat = _core.Engine(*tiny_files(tiny_name, weight_flat=True), n_threads=1)
    for grid in ((2, 2), (16, 10)):
        patches = random_patches(grid[0] * grid[1])
        np.testing.assert_array_equal(vit(kernels, patches, grid), vit(flat, patches, grid))


def test_frames_are_told_apart(tiny_files: Files) -> None:
    engine = _core.Engine(*tiny_files(QWEN25), n_threads=1)
    patches = random_patches(16)
    swapped = patches.reshape(16, 3, 2, 196)[:, :, ::-1].reshape(16, 1176).copy()
    difference = vit(engine, patches, (4, 4)) - vit(engine, swapped, (4, 4))
    assert np.abs(difference).max() > 0.01


def test_patches_are_not_rounded_to_half(tiny_files: Files) -> None:
    engine = _core.Engine(*tiny_files(QWEN25), n_threads=1)
    patches = random_patches(16)
    half = patches.astype(np.float16).astype(np.float32)
    assert np.abs(vit(engine, patches, (4, 4)) - vit(engine, half, (4, 4))).max() > 1e-5


def test_written_window_size(tmp_path: Path) -> None:
    """With 56 pixels the tokens of the first window see nothing beyond it."""
    model = replace(tiny.MODELS[QWEN25], wa_pattern=99)  # no layer of full attention
    weights = tiny.weights(model)
    with exactness.written_window(56):
        mmproj = gguf_writer.write_mmproj(model, weights, tmp_path / "mmproj.gguf")
    text = gguf_writer.write_text(model, weights, tmp_path / "text.gguf")
    engine = _core.Engine(text, mmproj, n_threads=1)
    picture = tiny.picture(8, 12)
    other = tiny.picture(8, 12, seed=1)
    other[:56, :56] = picture[:56, :56]
    rows, changed = (
        vit(engine, tiny.patches(image), (8, 12)).reshape(4, 6, -1) for image in (picture, other)
    )
    np.testing.assert_allclose(rows[:2, :2], changed[:2, :2], atol=1e-6)
    assert np.abs(rows[:2, 2:] - changed[:2, 2:]).max() > 0.01
    assert np.abs(rows[2:, :2] - changed[2:, :2]).max() > 0.01


def test_half_precision_cache(tiny_name: str, tiny_files: Files) -> None:
    """Keys and values are rounded, and nothing else: every chunk size reads the same cache."""
    case = golden.load(tiny_name)["long"]
    whole, *chunked = (
        exactness.run(
            _core.Engine(*tiny_files(tiny_name), n_threads=1, n_ubatch=n_ubatch, f16_kv=True), case
        ).hidden
        for n_ubatch in (512, 7, 1)
    )
    for hidden in chunked:
        assert worst_row_error(hidden, whole) < 5e-4
