"""bench_quality.py gives transformers and F32 files of the same weights the same scores."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support import tiny

pytestmark = pytest.mark.torch
reference = pytest.importorskip("support.reference")
if importlib.util.find_spec("mteb") is None:
    pytest.skip("needs: pip install mteb==2.26.24", allow_module_level=True)

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from quality import pairs  # noqa: E402

# Sides in pixels, and the tokens after rounding to multiples of 28, halves to even.
SIZES = {
    (140, 196): 5 * 7,
    (224, 84): 8 * 3,
    (56, 56): 2 * 2,
    (98, 308): 4 * 11,
    (168, 168): 6 * 6,
    (70, 112): 2 * 4,
}
N_PAGES = 24


def run(*words: object) -> None:
    """Runs a program of benchmarks/ in a process of its own: mteb imports what tests replace."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    pairs.tiny_pair(folder)
    return folder


def make_set(folder: Path) -> Path:
    tables: dict[str, list[dict[str, object]]] = {"corpus": [], "queries": [], "qrels": []}
    folder.mkdir()
    for i in range(N_PAGES):
        height, width = list(SIZES)[i % len(SIZES)]
        Image.fromarray(tiny.pixels(height, width, seed=i)).save(folder / f"{i}.png")
        tables["corpus"].append({"corpus-id": f"p{i}", "image": f"{i}.png"})
        tables["queries"].append({"query-id": f"q{i}", "query": f"page {i} of {i * i} pages"})
        tables["qrels"].append({"query-id": f"q{i}", "corpus-id": f"p{i}", "score": 1})
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def n_around(profile: str) -> int:
    """Tokens around a picture: two markers, and jina-embeddings-v4's chat prompt."""
    if profile == "qwen2.5-vl":
        return 2
    whole = reference.Reference(tiny.MODELS["qwen25_small"]).image_ids((2, 2))
    return len(whole) - 1


@pytest.mark.parametrize("profile", ["qwen2.5-vl", "jina-embeddings-v4"])
def test_same_scores_as_transformers(profile: str, models: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    files = [models / "f32-text.gguf", models / "f32-mmproj.gguf"]
    projector = f"projector={models / 'projector.gguf'}"
    run(
        *("bench_quality.py", make_set(tmp_path / "set"), "--option", f"profile={profile}"),
        *("--reference", models / "hf", "--vectors", "single", "multi"),
        *("--run", "F32", *files, projector, "--output", output),
    )
    rows = json.loads(output.read_text())["rows"]
    assert [(row["model"], row["vectors"]) for row in rows] == [
        *(("transformers", "single"), ("transformers", "multi")),
        *(("F32", "single"), ("F32", "multi")),
    ]
    single, multi, *ours = rows
    for own, right in zip(ours, (single, multi), strict=True):
        assert own["per_query"] == right["per_query"]
        assert own["same_ten"] == 1
        assert own["vectors_per_page"] == right["vectors_per_page"]
    assert (multi["dim"], single["dim"]) == (128, 64)
    assert multi["vectors_per_page"] == pytest.approx(
        np.mean(list(SIZES.values())) + n_around(profile)
    )
    assert single["means"] != multi["means"]
