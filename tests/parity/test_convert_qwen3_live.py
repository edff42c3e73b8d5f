"""Converted Qwen3-VL checkpoints against llama.cpp's converter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jmm.convert import convert
from support import qwen3_checkpoint, upstream

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not upstream.is_there(), reason=upstream.NEEDS),
]
for package in ("torch", "transformers"):
    pytest.importorskip(package)

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "Qwen3-VL-2B": {"dtype": "BF16"},
    "Qwen3-VL-Embedding-8B": {
        "dtype": "F16",
        "add_eos": True,
        "tied": False,
        "text": {"rms_norm_eps": 1e-5},
    },
}
TYPES = ("f32", "f16", "bf16", "q8_0")
# The tower's epsilon is a constant of transformers' class; the other takes the text model's.
EPSILON = {"clip.vision.attention.layer_norm_epsilon": ("FLOAT32", pytest.approx(1e-6))}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints and what llama.cpp makes of them, all in one process."""
    root = tmp_path_factory.mktemp("oracle")
    runs: list[tuple[str, list[str | Path]]] = []
    for name, options in CHECKPOINTS.items():
        folder = qwen3_checkpoint.write(root / name, **options)
        for kind in TYPES:
            for part, more in (("text", []), ("mmproj", ["--mmproj"])):
                out = root / f"{name}-{part}-{kind}.gguf"
                arguments = [folder, "--outtype", kind, "--outfile", out, *more]
                runs.append(("convert_hf_to_gguf.py", arguments))
    upstream.run(*runs)
    return root


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_files_are_those_of_llama_cpp(name: str, kind: Any, oracle: Path, tmp_path: Path) -> None:
    out = convert(oracle / name, tmp_path / "out", text_type=kind, vision_type=kind)
    upstream.check_equal(out / "text.gguf", oracle / f"{name}-text-{kind}.gguf")
    upstream.check_equal(
        out / "mmproj.gguf",
        oracle / f"{name}-mmproj-{kind}.gguf",
        other=EPSILON if "text" in CHECKPOINTS[name] else {},
    )
