"""GME, ColQwen and Qwen3-VL against what transformers computed in fp32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError, VisionEncoder, _core
from support import family_calls, golden, qwen3, tiny
from support.family_calls import GRID, QWEN3_GRIDS, TEXT
from support.sequences import cosine

RIGHT = {key: value for key, value in np.load(family_calls.GOLDEN).items() if key != "meta"}
CALLS = sorted({tuple(key.split("/")[:2]) for key in RIGHT if not key.startswith("qwen3/")})
COSINE = 0.999999
COMPONENT = 2e-6
VIT = 1e-5

Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("qwen3")
    weights = qwen3.golden_weights()
    text = qwen3.write_text(weights, folder / "text.gguf")
    return text, qwen3.write_mmproj(weights, folder / "mmproj.gguf")


@pytest.fixture(scope="module")
def embedders(
    files: Files, tiny_files: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Embedder]]:
    folder = tmp_path_factory.mktemp("colqwen")
    projectors = {
        name: family_calls.write_projector(folder / f"{name}.gguf", name)
        for name in family_calls.FAMILIES
        if name.startswith("colqwen")
    }
    opened = {
        name: Embedder(
            *(files if name == "qwen3-vl-embedding" else tiny_files(family_calls.model(name).name)),
            profile=name,
            projector=projectors.get(name),
            min_pixels=1,
            n_threads=1,
        )
        for name in family_calls.FAMILIES
    }
    yield opened
    for embedder in opened.values():
        embedder.close()


def test_golden_file_belongs_to_the_seeds() -> None:
    meta = json.loads(str(np.load(family_calls.GOLDEN)["meta"]))
    assert meta["qwen2"] == tiny.sha256(golden.weights(family_calls.MODEL.name))
    assert meta["qwen25"] == tiny.sha256(golden.weights(family_calls.COLQWEN25_MODEL.name))
    assert meta["qwen3"] == tiny.sha256(qwen3.golden_weights())


@pytest.mark.parametrize(("family", "call"), CALLS)
def test_token_layout(family: str, call: str, embedders: dict[str, Embedder]) -> None:
    pad = family_calls.MODEL.vocab.id("<|image_pad|>")
    ids = np.array(family_calls.trace(embedders[family], call).ids)
    np.testing.assert_array_equal(np.where(ids < 0, pad, ids), RIGHT[f"{family}/{call}/ids"])


@pytest.mark.parametrize(("family", "call"), CALLS)
def test_vectors(family: str, call: str, embedders: dict[str, Embedder]) -> None:
    is_late = family.startswith("colqwen")
    found = family_calls.call(embedders[family], call, multi_vector=is_late)
    right = RIGHT[f"{family}/{call}/{'tokens' if is_late else 'vector'}"]
    assert np.abs(found - right).max() <= COMPONENT
    for row, right_row in zip(np.atleast_2d(found), np.atleast_2d(right), strict=True):
        assert cosine(row, right_row) >= COSINE


@pytest.mark.parametrize("name", ["gme-qwen2-vl", "colqwen2-hf"])
def test_positions_of_a_grid_would_be_seen(name: str, embedders: dict[str, Embedder]) -> None:
    engine = embedders[name]._engine
    patches = tiny.patches(tiny.picture(*GRID))
    parts = family_calls.FAMILIES[name].image_parts((patches, *GRID))
    last = [_last(engine, engine.tokenize(parts, in_order=flag)) for flag in (True, False)]
    assert np.abs(last[0] - last[1]).max() > 100 * COMPONENT


def _last(engine: _core.Engine, sequence: Any) -> np.ndarray:
    pooled = np.empty((1, engine.n_embd), np.float32)
    engine.forward([sequence], [(sequence.n_tokens - 1, sequence.n_tokens)], pooled)
    return pooled[0] / np.linalg.norm(pooled)


@pytest.mark.parametrize("grid", QWEN3_GRIDS)
def test_qwen3_tower(grid: tuple[int, int], files: Files) -> None:
    with VisionEncoder(files[1], min_pixels=1, n_threads=1) as encoder:
        tokens = encoder.encode(family_calls.qwen3_pixels(grid))
    right = RIGHT["qwen3/vit/{}x{}".format(*grid)]
    assert tokens.grid == grid
    assert tokens.values.shape == right.shape == (grid[0] * grid[1] // 4, 3 * qwen3.HIDDEN)
    assert np.abs(tokens.values - right).max() <= VIT


def test_pictures_in_one_forward(files: Files) -> None:
    """Each picture gets what it gets alone, whatever shares the forward."""
    grids = [grid for grid in QWEN3_GRIDS for _ in range(2)]
    pictures = [family_calls.qwen3_pixels(grid, seed=i) for i, grid in enumerate(grids)]
    with VisionEncoder(files[1], min_pixels=1, n_threads=1) as encoder:
        for together, picture in zip(encoder.encode(pictures), pictures, strict=True):
            assert np.abs(together.values - encoder.encode(picture).values).max() <= 2e-6


@pytest.mark.parametrize("n_ubatch", [1, 7, 64])
def test_chunks(n_ubatch: int, files: Files, embedders: dict[str, Embedder]) -> None:
    right = family_calls.call(embedders["qwen3-vl-embedding"], "mixed")
    with Embedder(
        *files, profile="qwen3-vl-embedding", min_pixels=1, n_threads=1, n_ubatch=n_ubatch
    ) as embedder:
        assert np.abs(family_calls.call(embedder, "mixed") - right).max() <= 2e-6


def test_company(embedders: dict[str, Embedder]) -> None:
    embedder = embedders["qwen3-vl-embedding"]
    items = [TEXT, family_calls.qwen3_pixels((10, 4)), ["a text", family_calls.qwen3_pixels(GRID)]]
    rows = embedder.encode_document(items)
    for item, row in zip(items, rows, strict=True):
        assert np.abs(embedder.encode_document([item])[0] - row).max() <= 2e-6


def test_vision_tokens(files: Files, embedders: dict[str, Embedder]) -> None:
    """Rows with deepstack features pass for the picture, also as bytes, without the tower."""
    embedder = embedders["qwen3-vl-embedding"]
    pixels = family_calls.qwen3_pixels(GRID)
    tokens = embedder.encode_vision(pixels)
    tokens = type(tokens).from_bytes(tokens.to_bytes())
    with Embedder(*files, profile="qwen3-vl-embedding", n_threads=1, load_vision=False) as without:
        np.testing.assert_array_equal(without.encode_images(tokens), embedder.encode_images(pixels))


def test_the_end_that_the_vocabulary_wants(tmp_path: Path, files: Files) -> None:
    text = qwen3.write_text(qwen3.golden_weights(), tmp_path / "eos.gguf", add_eos=True)
    with Embedder(
        text, files[1], profile="qwen3-vl-embedding", min_pixels=1, n_threads=1
    ) as embedder:
        for name in ("query", "picture", "mixed"):
            ids = family_calls.trace(embedder, name).ids
            assert ids[-1] == qwen3.vocab().id("<|endoftext|>")
            assert len(ids) == len(RIGHT[f"qwen3-vl-embedding/{name}/ids"]) + 1


def test_multi_vector_and_heat(files: Files, tmp_path: Path) -> None:
    from jmm.inspect import heatmap

    weight = tiny.draw([("proj.weight", (8, qwen3.HIDDEN)), ("proj.bias", (8,))], 13)
    tensors = {f"multi_vector_{name}": (value, "F32") for name, value in weight.items()}
    tensors = {name.replace("proj.", "projector."): pair for name, pair in tensors.items()}
    text = qwen3.write_text(qwen3.golden_weights(), tmp_path / "late.gguf", extra=tensors)
    with Embedder(text, files[1], profile="qwen3-vl", min_pixels=1, n_threads=1) as embedder:
        rows = embedder.encode_images(family_calls.qwen3_pixels(GRID), multi_vector=True)
        assert rows.shape == (8, 8)  # 6 of the picture and its two markers
        found = heatmap(embedder, family_calls.qwen3_pixels(GRID), TEXT)
        assert found.contributions.shape == (2, 3)


def test_profile_of_a_plain_model(files: Files) -> None:
    with Embedder(*files, n_threads=1) as embedder:
        assert embedder.profile.name == "qwen3-vl"
        assert embedder.profile.pooling == "mean"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"n_deepstack_layers": 1}, "2 of its layers feed"),
        ({"n_deepstack_layers": qwen3.LAYERS}, "n_deepstack_layers is 4"),
        ({"attention.value_length": 8}, "keys have 16 components and values 8"),
        ({"attention.key_length": 12, "attention.value_length": 12}, "dimension_sections"),
        ({"attention.head_count_kv": 3}, "cannot share"),
    ],
)
def test_settings_that_do_not_fit(
    keys: dict[str, int], message: str, files: Files, tmp_path: Path
) -> None:
    text = qwen3.write_text(qwen3.golden_weights(), tmp_path / "text.gguf", keys=keys)
    with pytest.raises(ModelLoadError, match=message):
        Embedder(text, files[1])


@pytest.mark.parametrize(
    "name",
    [
        "model.visual.patch_embed.proj.bias",
        "model.visual.pos_embed.weight",
        "model.visual.blocks.1.attn.qkv.weight",
        "model.visual.deepstack_merger_list.1.norm.bias",
        "model.visual.deepstack_merger_list.0.linear_fc2.weight",
        "model.visual.merger.linear_fc1.bias",
    ],
)
def test_towers_that_lack_a_tensor(name: str, files: Files, tmp_path: Path) -> None:
    weights = {key: value for key, value in qwen3.golden_weights().items() if key != name}
    mmproj = qwen3.write_mmproj(weights, tmp_path / "mmproj.gguf")
    with pytest.raises(ModelLoadError, match=r"is (missing|needed)"):
        Embedder(files[0], mmproj)


def test_a_tower_of_another_family(files: Files, tiny_files: Any) -> None:
    with pytest.raises(ModelLoadError, match="belongs to a qwen2vl model"):
        Embedder(files[0], tiny_files("qwen2_small")[1])
    with pytest.raises(ModelLoadError, match="belongs to a qwen3vl model"):
        Embedder(tiny_files("qwen2_small")[0], files[1])


def test_patches_of_another_size(embedders: dict[str, Embedder]) -> None:
    with pytest.raises(InputError, match="1176"):
        embedders["qwen3-vl-embedding"].encode_patches(np.zeros((16, 1176), np.float32), [1, 4, 4])
