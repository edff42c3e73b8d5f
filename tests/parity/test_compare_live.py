"""``jmm compare --reference`` against transformers in fp32, live."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, ModelLoadError
from jmm.cli import main
from jmm.inspect import Reference, compare, resolutions
from support import golden, qwen3, qwen3_checkpoint, tiny

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

# Of 1 - cosine; F32 files come far below it.
LIMIT = 1e-4
PAGE = tiny.pixels(200, 330, seed=3)
NAMES = ("qwen25_small", "qwen2_small")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    from support import reference

    folder = tmp_path_factory.mktemp("checkpoints")

    def write(name: str) -> Path:
        target = folder / name
        if not target.exists():
            net = reference.Reference(tiny.MODELS[name], golden.weights(name)).net
            net.save_pretrained(target)
        return target

    return write


@pytest.mark.parametrize("profile", [None, "jina-embeddings-v4"])
@pytest.mark.parametrize("name", NAMES)
def test_equal_weights(
    name: str,
    profile: str | None,
    checkpoint: Callable[[str], Path],
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    with Embedder(*tiny_files(name), profile=profile, n_threads=1) as embedder:
        picture, ours = resolutions(embedder, PAGE)
    found = compare(("a", "b"), picture, ours, Reference(checkpoint(name)).trace)
    for part in (found.low, found.high):
        assert 0 < part.cells.max() <= LIMIT
        assert part.around.max(initial=0) <= LIMIT
        assert part.pooled <= LIMIT
    assert found.low.cells.size < found.high.cells.size == 7 * 12


def test_other_weights_are_seen(
    checkpoint: Callable[[str], Path], tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    with Embedder(*tiny_files("qwen25_small", "Q8_0"), n_threads=1) as embedder:
        picture, rough = resolutions(embedder, PAGE)
    with Embedder(*tiny_files("qwen25_small"), n_threads=1) as embedder:
        _, exact = resolutions(embedder, PAGE)
    trace = Reference(checkpoint("qwen25_small")).trace
    far, near = (compare(("a", "b"), picture, ours, trace) for ours in (rough, exact))
    assert far.high.cells.mean() > 100 * near.high.cells.mean()


def test_command(
    checkpoint: Callable[[str], Path],
    tiny_files: Callable[..., tuple[Path, Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Image.fromarray(PAGE).save(tmp_path / "page.png")
    text, mmproj = map(str, tiny_files("qwen25_small"))
    words = ["compare", str(tmp_path / "page.png"), "--model", text, "--mmproj", mmproj]
    words += ["--reference", str(checkpoint("qwen25_small")), str(tmp_path / "out.png"), "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    record = json.loads(out)
    assert record["second"].startswith("transformers fp32, ")
    assert 0 < np.max(record["high"]["distances"]) <= LIMIT


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="there is no config"):
        Reference(tmp_path)
    config = tmp_path / "config.json"
    for text, message in (
        ('{"model_type": "qwen2_5_vl"}', "transformers cannot load it"),
        ('{"model_type": "llava"}', "model_type is 'llava'; known are qwen2_vl, qwen2_5_vl"),
        ('{"model_type": "qwen2_5_vl", "text_config": {"hidden_size": "x"}}', "cannot load it"),
        ("{}", "model_type is None"),
        ("[]", "model_type is None"),
        ("{", "config.json: the file cannot be read"),
        ("[" * 100_000, "config.json: the file cannot be read"),
    ):
        config.write_text(text)
        with pytest.raises(ModelLoadError, match=message):
            Reference(tmp_path)


def spoil(folder: Path, how: str) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("mlp.gate_proj.weight"))
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
        return
    if how == "missing":
        del weights[name]
    elif how == "shape":
        weights[name] = weights[name][:-1].clone()
    save_file(weights, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "1 weights are missing: .*mlp.gate_proj.weight; copy"),
        ("shape", "1 weights have other shapes than config.json: .*mlp.gate_proj.weight"),
        ("cut", "transformers cannot load it"),
        ("whole", None),
    ],
)
def test_damaged_checkpoints(
    how: str,
    message: str | None,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(checkpoint("qwen25_small"), tmp_path / "copy")
    spoil(folder, how)
    if message is None:
        Reference(folder)
    else:
        with pytest.raises(ModelLoadError, match=message):
            Reference(folder)
    assert "LOAD REPORT" not in capfd.readouterr().err


def test_an_untied_head_may_be_missing(
    checkpoint: Callable[[str], Path], tmp_path: Path, tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    """Embedding models are published without it, and no vector comes from it."""
    folder = shutil.copytree(checkpoint("qwen25_small"), tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config))
    with Embedder(*tiny_files("qwen25_small"), n_threads=1) as embedder:
        picture, ours = resolutions(embedder, PAGE)
    found = compare(("a", "b"), picture, ours, Reference(folder).trace)
    assert 0 < found.high.cells.max() <= LIMIT


def test_checkpoints_of_other_models(
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    with Embedder(*tiny_files("qwen25_small"), n_threads=1) as embedder:
        ours = embedder.trace(PAGE)
    reference = Reference(checkpoint("qwen25_small"))
    with pytest.raises(InputError, match=r"has \d+ tokens, and the GGUF model gave token 99999"):
        reference.trace(replace(ours, ids=[*ours.ids[:-1], 99_999]))
    patches, *grid = ours.patches or ()
    wider = np.concatenate([patches, patches[:, :360]], axis=1)
    with pytest.raises(InputError, match="have 1176 numbers, and those of the GGUF model 1536"):
        reference.trace(replace(ours, patches=(wider, *grid)))


def test_qwen3_and_its_larger_patches(tmp_path: Path) -> None:
    folder = qwen3_checkpoint.write(tmp_path / "checkpoint")
    weights = qwen3.golden_weights()
    files = (
        qwen3.write_text(weights, tmp_path / "t.gguf"),
        qwen3.write_mmproj(weights, tmp_path / "m.gguf"),
    )
    with Embedder(*files, n_threads=1, min_pixels=1) as embedder:
        picture, ours = resolutions(embedder, PAGE)
    assert [trace.cell for trace in ours] == [32, 32]
    found = compare(("a", "b"), picture, ours, Reference(folder).trace)
    for part in (found.low, found.high):
        assert part.picture.size == (32 * part.cells.shape[1], 32 * part.cells.shape[0])
        assert 0 < part.cells.max() <= LIMIT
    assert found.high.cells.shape == (6, 10)
    # a quarter of that area is 15,360 pixels, where 200 x 330 has 96.5 x 159.2: 3.0 x 4.98 cells
    assert found.low.cells.shape == (3, 4)


def test_a_text_has_no_patches(
    checkpoint: Callable[[str], Path], tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    with Embedder(*tiny_files("qwen25_small"), n_threads=1) as embedder:
        ours = embedder.trace("a text", kind="query")
    with pytest.raises(InputError, match="patches"):
        Reference(checkpoint("qwen25_small")).trace(ours)
