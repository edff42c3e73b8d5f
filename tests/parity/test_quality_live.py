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
from support.sequences import unit_mean, vision_span

pytestmark = pytest.mark.torch
reference = pytest.importorskip("support.reference")
if importlib.util.find_spec("mteb") is None:
    pytest.skip("needs: pip install 'jmm[bench]'", allow_module_level=True)

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


# A query, a text document and a picture, as the models' own code writes them.
WRITTEN = {
    "qwen2.5-vl": ("{}", "{}", "<|vision_start|>{}<|vision_end|>"),
    "jina-embeddings-v4": (
        "Query: {}",
        "Passage: {}",
        "<|im_start|>user\n<|vision_start|>{}<|vision_end|>Describe the image.<|im_end|>\n",
    ),
}
EMBED = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
from quality.with_transformers import TransformersRetriever

folder, profile, picture, text, out = sys.argv[1:]
retriever = TransformersRetriever(Path(folder), profile=profile, n_threads=1)
rows = {}
for multi in (False, True):
    rows[f"query{multi:d}"] = retriever.queries([text], multi_vector=multi)[0]
    for name, item in (("text", text), ("picture", Image.open(picture))):
        rows[f"{name}{multi:d}"] = retriever.documents([item], multi_vector=multi)[0]
np.savez(out, **rows)
"""


@pytest.mark.parametrize("profile", WRITTEN)
def test_prompts_of_the_reference(profile: str, models: Path, tmp_path: Path) -> None:
    """The retriever has its prompts from the profile; here they are written out."""
    safetensors = pytest.importorskip("safetensors.numpy")
    text, image = "thirteen blue boats", tiny.pixels(140, 196, seed=5)
    Image.fromarray(image).save(tmp_path / "p.png")
    out = tmp_path / "rows.npz"
    run("-c", EMBED, models / "hf", profile, tmp_path / "p.png", text, out)
    found = np.load(out)

    model = tiny.MODELS[pairs.TINY]
    net = reference.Reference(model, tiny.weights(model), double=True)
    projector = safetensors.load_file(models / "hf" / f"{pairs.PROJECTOR}.safetensors")
    weight, bias = (
        projector[f"{pairs.PROJECTOR}.{name}"].astype(np.float64) for name in ("weight", "bias")
    )
    query, document, picture = WRITTEN[profile]
    for name, words in (
        ("query", query.format(text)),
        ("text", document.format(text)),
        ("picture", picture.format("<|image_pad|>" * SIZES[140, 196])),
    ):
        ids = net.tokenize(words, special=name == "picture")
        grid = (tiny.patches(image), [(10, 14)]) if name == "picture" else ()
        hidden = net.hidden(ids, *grid)
        spanned = name == "picture" and profile == "jina-embeddings-v4"
        rows = vision_span(model, ids) if spanned else (0, None)
        np.testing.assert_allclose(found[f"{name}0"], unit_mean(hidden, *rows), atol=2e-5)
        right = hidden @ weight.T + bias
        right /= np.linalg.norm(right, axis=1, keepdims=True)
        np.testing.assert_allclose(found[f"{name}1"], right, atol=2e-5)


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
