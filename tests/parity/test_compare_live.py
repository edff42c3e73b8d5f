"""``jmm compare --reference`` against transformers in fp32, live."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, InputError, ModelLoadError
from jmm.cli import main
from jmm.inspect import Reference, compare, resolutions
from support import golden, tiny

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
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    with pytest.raises(ModelLoadError, match="transformers cannot load it"):
        Reference(tmp_path)


def test_a_text_has_no_patches(
    checkpoint: Callable[[str], Path], tiny_files: Callable[..., tuple[Path, Path]]
) -> None:
    with Embedder(*tiny_files("qwen25_small"), n_threads=1) as embedder:
        ours = embedder.trace("a text", kind="query")
    with pytest.raises(InputError, match="patches"):
        Reference(checkpoint("qwen25_small")).trace(ours)
