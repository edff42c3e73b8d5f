"""GPUs: which device a model goes to, and what a GPU computes beside the golden files.

The last part needs a GPU. Its limits are those of TF32 products and of keys and values in half
precision, which ggml's CUDA backend takes for float32 weights.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import exactness
from jmm import Embedder, InputError, VisionEncoder, _core, build_info, demo, devices
from support import gguf_writer, golden, tiny
from support.gguf_writer import FileType
from support.sequences import cosine, relative_error

Files = Callable[..., tuple[Path, Path]]

GPUS = [str(device["name"]) for device in devices() if device["kind"] in ("gpu", "igpu")]
BACKENDS = build_info()["backends"]

needs_gpu = pytest.mark.skipif(not GPUS, reason="there is no GPU, or the build is for none")
needs_no_gpu = pytest.mark.skipif(bool(GPUS), reason="there is a GPU")
for_gpus = pytest.mark.skipif(BACKENDS == ["CPU"], reason="this build is for the CPU alone")

# Relative error of the tower's rows; least cosine of a vector. Of transformers in double precision.
VIT = 1e-2
COSINE = {"F32": 0.9999, "F16": 0.9999, "BF16": 0.999, "Q8_0": 0.99}
TEXTS = ("a few rows", "many rows " * 60)
KEYS = ("sentence", "20x14", "2x40", "mixed")


def test_backends() -> None:
    assert isinstance(BACKENDS, list)
    assert BACKENDS.count("CPU") == 1


@pytest.mark.parametrize("name", ["CUDA99", "", "gpu", "Cpu0", 0, ["CPU"]])
def test_unknown_device(name: object) -> None:
    listed = ", ".join(["cpu", *GPUS])
    for load in (
        lambda: Embedder(device=name),
        lambda: VisionEncoder(demo.paths()[1], device=name),
    ):
        with pytest.raises(InputError) as caught:
            load()
        assert repr(name) in str(caught.value)
        assert f"there are {listed}, " in str(caught.value)


def test_unknown_device_of_an_engine() -> None:
    for load in (_core.Engine, _core.Tower):
        with pytest.raises(InputError, match="no device 'CUDA99'"):
            load(demo.paths()[1], n_threads=1, device="CUDA99")


@pytest.mark.parametrize("name", ["cpu", "CPU"])
def test_cpu_by_name(name: str) -> None:
    with Embedder(device=name, n_threads=1) as embedder:
        assert embedder.info["device"] == "cpu"
        assert np.isfinite(embedder.encode_query("red")).all()


def test_contradiction() -> None:
    with pytest.raises(InputError, match="'cpu' and n_gpu_layers is 3"):
        Embedder(device="cpu", n_gpu_layers=3)


@needs_no_gpu
def test_without_a_gpu(caplog: pytest.LogCaptureFixture) -> None:
    """A build for GPUs says so once per model; it loads without a driver too."""
    with caplog.at_level(logging.WARNING, "jmm"), Embedder(n_threads=1) as embedder:
        assert embedder.info["device"] == "cpu"
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == (BACKENDS != ["CPU"])
    assert all("found no GPU" in warning for warning in warnings)


@for_gpus
@needs_no_gpu
def test_import_without_a_driver() -> None:
    """Says nothing, also where nobody has set up logging."""
    program = "import jmm; print([device['kind'] for device in jmm.devices()])"
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True)
    assert (done.stdout, done.stderr) == ("['cpu']\n", "")


@needs_gpu
def test_first_gpu_is_the_default() -> None:
    with Embedder() as embedder:
        assert embedder.info["device"] == GPUS[0]
    with pytest.raises(InputError, match="n_gpu_layers is 0"):
        Embedder(device=GPUS[0], n_gpu_layers=0)


@needs_gpu
@pytest.mark.parametrize("file_type", list(COSINE))
@pytest.mark.parametrize("name", tiny.MODELS)
def test_golden(name: str, file_type: FileType, tiny_files: Files) -> None:
    engine = _core.Engine(*tiny_files(name, file_type), n_threads=2, device=GPUS[0])
    for key in KEYS:
        case = golden.load(name)[key]
        result = exactness.run(engine, case)
        assert np.isfinite(result.hidden).all()
        assert cosine(result.pooled, case.pooled) >= COSINE[file_type]
        if file_type == "F32" and result.vit is not None:
            assert relative_error(result.vit, case.vit) <= VIT


@needs_gpu
def test_company_on_a_gpu(tiny_files: Files) -> None:
    """Pictures of several sizes in one forward, each against itself alone."""
    pages = [
        np.random.default_rng(i).integers(0, 256, (28 * h, 28 * w, 3), np.uint8)
        for i, (h, w) in enumerate([(4, 4), (4, 4), (1, 20), (9, 5), (2, 2)])
    ]
    with Embedder(*tiny_files("qwen25_head80"), device=GPUS[0]) as embedder:
        together = embedder.encode_images(pages)
        for page, row in zip(pages, together, strict=True):
            assert cosine(embedder.encode_images(page), row) >= COSINE["F32"]


@pytest.fixture(scope="module")
def large_sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with F16 weights, of which one product gives more than F16 can hold."""
    weights = dict(golden.weights("qwen25_small"))
    name = next(name for name in reversed(weights) if name.endswith("mlp.down_proj.weight"))
    weights[name] = weights[name] * (30_000 / np.abs(weights[name]).max())
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    return gguf_writer.write_text(tiny.MODELS["qwen25_small"], weights, path, "F16")


def pooled_of(engine: _core.Engine, text: str) -> np.ndarray:
    """Mean over all tokens."""
    sequence = engine.tokenize([(text, False)])
    pooled = np.empty((1, engine.n_embd), np.float32)
    engine.forward([sequence], [(0, sequence.n_tokens)], pooled)
    return pooled[0]


def test_large_sums_are_large(large_sums: Path) -> None:
    """What the next test takes for granted: with few and with many rows."""
    engine = _core.Engine(large_sums, n_threads=1)
    engine.record_nodes()
    for text in TEXTS:
        assert np.isfinite(pooled_of(engine, text)).all()
        peaks = {node[1]: node[8] for node in engine.take_nodes()}
        assert max(peak for name, peak in peaks.items() if "ffn_out" in name) > 65504
        assert max(peak for name, peak in peaks.items() if "ffn_swiglu" in name) < 65504


@needs_gpu
def test_f16_large_sums(large_sums: Path) -> None:
    cpu = _core.Engine(large_sums, n_threads=1)
    engine = _core.Engine(large_sums, n_threads=1, device=GPUS[0])
    for text in TEXTS:
        vector = pooled_of(engine, text)
        assert np.isfinite(vector).all()
        assert cosine(vector, pooled_of(cpu, text)) >= COSINE["F16"]
