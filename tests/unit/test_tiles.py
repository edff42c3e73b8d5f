"""How pictures are cut into tiles, and what a tower of tiles must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import _core
from jmm.errors import InputError, ModelLoadError
from jmm.gguf_header import Header, check_mmproj, check_text
from jmm.pictures import n_bytes
from jmm.profiles import Tile
from jmm.tiles import TileProcessor
from support import family, family_golden, tiny, vision_family
from support.vision_family import VISION_FAMILIES

Headers = Callable[[str], tuple[Header, Header]]
NAMES = sorted(VISION_FAMILIES)
GEMMA4 = "embeddinggemma2_vision"
CLAMPS = (".input_min", ".input_max", ".output_min", ".output_max")


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Headers:
    folder = tmp_path_factory.mktemp("tiles")

    @lru_cache
    def read(name: str) -> tuple[Header, Header]:
        weights = family_golden.load(name).weights
        files = vision_family.write(VISION_FAMILIES[name], weights, folder / name)
        text, tower = (Header.of(str(path), *_core.read_gguf(str(path))) for path in files)
        return text, tower

    return read


def changed(header: Header, **keys: Any) -> Header:
    """``a__b`` is key ``clip.vision.a.b``."""
    named = {f"clip.vision.{key.replace('__', '.')}": value for key, value in keys.items()}
    return replace(
        header,
        metadata={**header.metadata, **named},
        types={**header.types, **dict.fromkeys(named, "u32")},
    )


def without(header: Header, tensor: str) -> Header:
    shapes, dtypes = dict(header.shapes), dict(header.dtypes)
    del shapes[tensor], dtypes[tensor]
    return replace(header, shapes=shapes, dtypes=dtypes)


@pytest.mark.parametrize("name", NAMES)
def test_right_files_pass(name: str, headers: Headers) -> None:
    text, tower = headers(name)
    check_text(text)
    check_mmproj(tower, text)


@pytest.mark.parametrize("name", NAMES)
def test_each_tensor_is_needed_in_its_shape(name: str, headers: Headers) -> None:
    text, tower = headers(name)
    for tensor in tower.shapes:
        shape = tower.shapes[tensor]
        other = replace(tower, shapes={**tower.shapes, tensor: (shape[0] + 1, *shape[1:])})
        with pytest.raises(ModelLoadError, match=r"tensor .* has shape|is square"):
            check_mmproj(other, text)
        if tensor.startswith(("v.pre_ln.w", "v.post_ln.w", "v.patch_embd.b")) or ".ls" in tensor:
            continue
        if tensor.endswith(CLAMPS):
            check_mmproj(without(tower, tensor), text)
            continue
        with pytest.raises(ModelLoadError, match=r"is missing|has shape|counterpart|0 rows per"):
            check_mmproj(without(tower, tensor), text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"image_size": 57}, "image_size is 57; a multiple of"),
        ({"image_size": 14 * 600}, "image_size is 8400"),
        ({"image_size": 14 * 128}, "rows; 1024 are supported"),
        ({"image_size": 70}, "image_size is 70|has shape"),
        ({"patch_size": 0}, "patch_size is 0"),
        ({"projector__scale_factor": 0}, "scale_factor is 0"),
        ({"projector__scale_factor": 3}, "image_size is"),
        ({"attention__head_count": 3}, "cannot be split into 3 heads"),
        ({"block_count": 49}, "at most 48"),
        ({"projection_dim": 64}, "belong to different models"),
        ({"image_grid_pinpoints": [1, 1]}, "LLaVA-NeXT"),
        ({"preproc_max_tiles": 65}, "up to 64"),
        ({"preproc_min_tiles": 5, "preproc_max_tiles": 4}, "do not cross"),
    ],
)
def test_numbers(keys: dict[str, Any], message: str, headers: Headers) -> None:
    text, tower = headers("smolvlm")
    with pytest.raises(ModelLoadError, match=message):
        check_mmproj(changed(tower, **keys), text)


@pytest.mark.parametrize(("width", "n_layer"), [(768, 11), (1024, 23), (1280, 31)])
def test_llava_without_clips_last_layer(width: int, n_layer: int, headers: Headers) -> None:
    _, tower = headers("llava")
    n_embd = tower.metadata["clip.vision.embedding_length"]
    wider = {
        name: tuple(width if n == n_embd else 4 * width if n == 4 * n_embd else n for n in shape)
        for name, shape in tower.shapes.items()
    }
    keys = {"embedding_length": width, "attention__head_count": 4, "block_count": n_layer}
    cut = replace(changed(tower, **keys), shapes=wider)
    with pytest.raises(ModelLoadError, match=f"block_count is {n_layer}; .* has {n_layer + 1}"):
        check_mmproj(cut)
    with pytest.raises(ModelLoadError, match=r"tensor v\.blk\.\d+\..* is missing"):
        check_mmproj(replace(changed(tower, **{**keys, "block_count": n_layer + 1}), shapes=wider))


def test_a_language_model_of_another_kind(headers: Headers) -> None:
    text, tower = headers("internvl")
    types = {**text.types, "qwen2.rope.dimension_sections": "arr[i32]"}
    with pytest.raises(ModelLoadError, match="rows and columns"):
        check_mmproj(tower, replace(text, types=types))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"image_max_pixels": 143}, "gives 0 rows of 12 x 12"),
        ({"image_max_pixels": 1121 * 144}, "gives 1121 rows"),
        ({"image_max_pixels": 71 * 144}, "has 210 rows per axis; a picture may need 213"),
        ({"image_max_pixels": 0}, "image_max_pixels is 0"),
        ({"projector__scale_factor": 0}, "scale_factor is 0"),
        ({"projector__scale_factor": 8192}, "32768 x 32768"),
        ({"patch_size": 0}, "patch_size is 0"),
        ({"patch_size": 5}, "v.patch_embd.weight has shape"),
        ({"attention__head_count": 3}, "cannot be split into 3 heads"),
        ({"block_count": 49}, "at most 48"),
        ({"block_count": 1}, "has no place in this vision tower"),
        ({"projection_dim": 64}, "belong to different models"),
    ],
)
def test_numbers_of_gemma4(keys: dict[str, Any], message: str, headers: Headers) -> None:
    text, tower = headers(GEMMA4)
    with pytest.raises(ModelLoadError, match=message):
        check_mmproj(changed(tower, **keys), text)


def test_tensors_that_gemma4_has_not(headers: Headers) -> None:
    text, tower = headers(GEMMA4)
    for name in ("v.patch_embd.bias", "v.blk.0.attn_q.bias", "v.class_embd", "v.blk.9.x.input_min"):
        shapes = {**tower.shapes, name: (32, 1, 1, 1)}
        with pytest.raises(ModelLoadError, match=f"{name} has no place"):
            check_mmproj(replace(tower, shapes=shapes), text)


def test_gemma4_belongs_to_one_language_model(headers: Headers) -> None:
    text, tower = headers(GEMMA4)
    other_text, other_tower = headers("gemma3")
    for pair in ((tower, other_text), (other_tower, text)):
        with pytest.raises(ModelLoadError, match="are supported with each other alone"):
            check_mmproj(*pair)


@pytest.mark.parametrize(
    ("size", "grid"),
    [((84, 120), (7, 10)), ((1, 1), (8, 8)), ((1, 150), (1, 70)), ((150, 1), (70, 1))],
)
def test_rows_of_gemma4(size: tuple[int, int], grid: tuple[int, int], headers: Headers) -> None:
    processor = TileProcessor.of(headers(GEMMA4)[1].metadata)
    assert processor is not None
    picture = Image.fromarray(tiny.pixels(*size))
    (tile,) = (piece for piece in processor(picture).pieces if isinstance(piece, Tile))
    assert tile.pixels.shape == (12 * grid[0], 12 * grid[1], 3)
    assert processor.n_tokens(picture) == grid[0] * grid[1]
    with pytest.raises(InputError, match="aspect ratio above 200"):
        processor.n_tokens(Image.new("RGB", (201, 1)))


@pytest.mark.parametrize("name", [name for name in NAMES if name != GEMMA4])
def test_tiles_are_told_by_the_size(name: str, headers: Headers) -> None:
    _, tower = headers(name)
    processor = TileProcessor.of(tower.metadata)
    assert processor is not None
    for size in ((1, 1), (56, 57), (3, 500), (170, 60), (168, 168), (2, 400)):
        picture = Image.fromarray(tiny.pixels(*size))
        tiled = processor(picture)
        tiles = [piece for piece in tiled.pieces if isinstance(piece, Tile)]
        assert len(tiles) * processor.tile_tokens == processor.n_tokens(picture)
        assert n_bytes(tiled) == len(tiles) * processor.side**2 * 3 * 4
        for tile in tiles:
            assert tile.pixels.shape == (processor.side, processor.side, 3)
            assert tile.pixels.dtype == np.float32
            assert tile.pixels.flags.c_contiguous
    for size in ((201, 1), (1, 201)):
        with pytest.raises(InputError, match="aspect ratio above 200"):
            processor.n_tokens(Image.new("RGB", size))


# --- language models ---


def text_header(name: str, folder: Path) -> Header:
    known = family.FAMILIES[name]
    path = family.write(known, family_golden.load(name).weights, folder / f"{name}.gguf")
    return Header.of(str(path), *_core.read_gguf(str(path)))


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("bert", {"attention.head_count": 5}, "cannot be split into 5 heads"),
        ("bert", {"attention.layer_norm_epsilon": -1.0}, "a float from 0 on"),
        ("bert", {"context_length": 0}, "context_length is 0"),
        ("embeddinggemma", {"dense_2_feat_in": 47}, "dense_2_feat_in is 47; 48 is needed"),
        ("embeddinggemma", {"dense_3_feat_out": 47}, "dense_3_feat_out is 47; 48 is needed"),
        ("embeddinggemma", {"attention.sliding_window": 0}, "sliding_window is 0"),
        ("embeddinggemma2", {"attention.sliding_window": 0}, "sliding_window is 0"),
        ("embeddinggemma2", {"attention.head_count": 0}, "head_count is 0"),
        ("embeddinggemma2", {"attention.head_count_kv": 3}, "4 heads cannot share 3"),
        ("embeddinggemma2", {"attention.head_count_kv": [2, 2, 0]}, "4 heads cannot share 0"),
        ("embeddinggemma2", {"attention.key_length_swa": 0}, "key_length_swa is 0"),
        ("embeddinggemma2", {"attention.key_length_swa": 18}, "dimension_count_swa is 16"),
        ("embeddinggemma2", {"rope.dimension_count": 64}, "dimension_count is 64"),
        ("embeddinggemma2", {"block_count": 513}, "at most 512"),
        ("embeddinggemma2", {"expert_count": 2}, "expert_count is 2; 0 is supported"),
        ("embeddinggemma2", {"embedding_length_per_layer_input": 0}, "layer_input is 0"),
        ("embeddinggemma2", {"embedding_length_per_layer_input": 21}, r"proj\.weight has shape"),
        ("embeddinggemma2", {"embedding_length_out": 81}, r"output\.weight has shape"),
        ("mamba", {"ssm.conv_kernel": 0}, "conv_kernel is 0"),
        ("lfm2", {"shortconv.l_cache": 0}, "l_cache is 0"),
    ],
)
def test_language_models(name: str, keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    header = text_header(name, tmp_path)
    check_text(header)
    named = {f"{header.architecture}.{key}": value for key, value in keys.items()}
    with pytest.raises(ModelLoadError, match=message):
        check_text(replace(header, metadata={**header.metadata, **named}))


def test_dense_modules_come_in_pairs(tmp_path: Path) -> None:
    header = text_header("embeddinggemma", tmp_path)
    with pytest.raises(ModelLoadError, match=r"dense_2\.weight without its counterpart"):
        check_text(without(header, "dense_3.weight"))
    shapes = {**header.shapes, "dense_2.weight": (48, 79, 1, 1)}
    with pytest.raises(ModelLoadError, match=r"dense_2\.weight has shape"):
        check_text(replace(header, shapes=shapes))


def test_encoders_of_other_architectures(tmp_path: Path) -> None:
    header = text_header("bert", tmp_path)
    metadata = {**header.metadata, "general.architecture": "nomic-bert"}
    with pytest.raises(ModelLoadError, match="encoders of architecture 'nomic-bert'"):
        check_text(replace(header, metadata=metadata))
