"""The files that tests write of further families against llama.cpp's converter.

People get such files from that converter. What the other tests show of ours holds for theirs if
both say the same, and each difference is named here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder
from support import family, family_golden, tiny, upstream, vision_family
from support.vision_family import VISION_FAMILIES

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not upstream.is_there(), reason=upstream.NEEDS),
]
for package in ("torch", "transformers"):
    pytest.importorskip(package)
family_checkpoint = pytest.importorskip("support.family_checkpoint")

FAMILIES = family_checkpoint.families()
PAIRS = [
    (name, part)
    for name in sorted(FAMILIES)
    for part in ("text", "mmproj")
    if part == "text" or name in VISION_FAMILIES
]
# The pinned tree converts no tower of LLaVA 1.5.
PAIRS.remove(("llava", "mmproj"))
# The other names the projector's layers only if there are as many blocks, which it then counts.
VISION: dict[str, dict[str, Any]] = {"internvl": {"num_hidden_layers": 4}}
# What theirs say instead; of the first two the engine takes the same without them.
SWA = {"rope.freq_base_swa": ("FLOAT32", 1e4)}
SHARED = {"attention.shared_kv_layers": ("UINT32", 0)}
DIFFERENT: dict[tuple[str, str], dict[str, tuple[str, Any] | None]] = {
    ("gemma3", "text"): SWA,
    ("embeddinggemma", "text"): SWA,
    ("embeddinggemma2", "text"): SHARED,
    ("embeddinggemma2_vision", "text"): SHARED,
    ("mamba", "text"): {"context_length": ("UINT32", 1 << 20)},  # a constant
    # The key has its other name, and the limit is the processor's own.
    ("embeddinggemma2_vision", "mmproj"): {
        "clip.vision.projector_type": ("STRING", "gemma4v"),
        "clip.projector_type": None,
        "clip.vision.image_max_pixels": None,
    },
    ("internvl", "mmproj"): {"clip.vision.block_count": ("UINT32", 4)},
}
# Without those values they do not fit the tiny weights.
NOT_LOADED = {("embeddinggemma2_vision", "mmproj"), ("internvl", "mmproj")}
# f16 in every file type there.
HALF = {"mm.input_projection.weight"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each family ``NAME/text.gguf`` and so on, ours, and ``NAME-text.gguf``, theirs."""
    root = tmp_path_factory.mktemp("families")
    runs: list[tuple[str, list[str | Path]]] = []
    for name, part in PAIRS:
        arrays = family_golden.load(name).weights
        source = family_checkpoint.write(name, arrays, root / f"{name}-hf", VISION.get(name))
        options = ["--outtype", "f32", "--outfile", root / f"{name}-{part}.gguf"]
        options += ["--mmproj"] if part == "mmproj" else ["--sentence-transformers-dense-modules"]
        runs.append(("convert_hf_to_gguf.py", [source, *options]))
    upstream.run(*runs)
    return root


def ours(name: str, folder: Path) -> dict[str, Path]:
    """The files that other tests load."""
    arrays = family_golden.load(name).weights
    if name in VISION_FAMILIES:
        files = vision_family.write(VISION_FAMILIES[name], arrays, folder)
        return dict(zip(("text", "mmproj"), files, strict=True))
    return {"text": family.write(FAMILIES[name], arrays, folder / "text.gguf")}


@pytest.mark.parametrize(("name", "part"), PAIRS)
def test_tensors(name: str, part: str, folders: Path, tmp_path: Path) -> None:
    right = upstream.tensors(folders / f"{name}-{part}.gguf")
    found = upstream.tensors(ours(name, tmp_path)[part])
    assert found.keys() == right.keys()
    for tensor, (kind, shape, data) in right.items():
        assert found[tensor][1] == shape, tensor
        if kind == "F16" and tensor in HALF:
            data = np.frombuffer(data, np.float16)
            values = np.frombuffer(found[tensor][2], np.float32).astype(np.float16)
            np.testing.assert_array_equal(values, data)
        elif tensor.endswith(".ssm_a"):  # exp of torch and of numpy
            values = np.frombuffer(found[tensor][2], np.float32)
            np.testing.assert_allclose(values, np.frombuffer(data, np.float32), rtol=3e-7)
        else:
            assert found[tensor][0] == kind, tensor
            assert found[tensor][2] == data, tensor


@pytest.mark.parametrize(("name", "part"), PAIRS)
def test_keys(name: str, part: str, folders: Path, tmp_path: Path) -> None:
    right, found = (
        {key: value for key, value in upstream.keys(path).items() if not key.startswith("general.")}
        for path in (folders / f"{name}-{part}.gguf", ours(name, tmp_path)[part])
    )
    different = {key for key in right | found if right.get(key) != found.get(key)}
    named = {
        key if part == "mmproj" else f"{FAMILIES[name].architecture}.{key}": value
        for key, value in DIFFERENT.get((name, part), {}).items()
    }
    assert {key: right.get(key) for key in different} == named


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_theirs_give_the_same_vectors(name: str, folders: Path, tmp_path: Path) -> None:
    mine = ours(name, tmp_path)
    loaded = set(PAIRS) - NOT_LOADED
    theirs = {
        part: folders / f"{name}-{part}.gguf" if (name, part) in loaded else mine[part]
        for part in mine
    }
    rows = []
    for files in (mine, theirs):
        with Embedder(files["text"], files.get("mmproj"), n_threads=1) as embedder:
            items: list[Any] = ["the quick brown fox", "a page"]
            if "mmproj" in files:
                items += [tiny.pixels(70, 56), ["before", tiny.pixels(56, 56), "after"]]
            rows.append(embedder.encode_document(items))
    if name == "gemma3":
        assert np.abs(rows[0] - rows[1]).max() <= 1e-3
    elif name == "mamba":
        assert np.abs(rows[0] - rows[1]).max() <= 2e-6
    else:
        np.testing.assert_array_equal(rows[0], rows[1])
