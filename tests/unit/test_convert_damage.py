"""Damaged checkpoints: each is named by the error, and nothing is left of the conversion."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from jmm.bundle import open_bundle
from jmm.convert import convert
from jmm.errors import InputError, ModelLoadError
from support import checkpoint
from support.damage import (
    MODEL,
    Damage,
    adapters,
    cut,
    edit,
    head,
    poke,
    remove,
    rewrite,
    setting,
    without,
)

UP = "model.layers.1.mlp.up_proj.weight"
LORA = "base_model.model.model.language_model.layers.2.mlp.up_proj.lora_A.code.weight"
ADDED = {"id": 0, "special": True}

CASES: list[tuple[Damage, str]] = [
    (remove("config.json"), "config.json: there is no such file"),
    (remove("tokenizer.json"), "tokenizer.json: there is no such file"),
    (remove("preprocessor_config.json"), "preprocessor_config.json: there is no such file"),
    (remove("model.safetensors"), "neither model.safetensors nor model.safetensors.index.json"),
    (remove("adapters/adapter_config.json"), "adapter_config.json: there is no such file"),
    (remove("adapters/adapter_model.safetensors"), "adapter_model.safetensors: there is no"),
    (lambda f: (f / "config.json").write_text("{") and None, "config.json: the file is no JSON"),
    (lambda f: (f / "config.json").write_text("[]") and None, "config.json: it holds list"),
    (
        setting("config.json", "architectures", ["LlamaForCausalLM"]),
        "architectures is ['LlamaForCausalLM']; supported are JinaEmbeddingsV4Model, Qwen2VLFor",
    ),
    (setting("config.json", "architectures", []), "architectures is []"),
    (setting("config.json", "architectures", [[1]]), "architectures is [[1]]; supported are"),
    (without("config.json", "vision_config"), "vision_config is missing"),
    (without("config.json", "text_config.hidden_size"), "three numbers that sum to 1024"),
    (setting("config.json", "text_config.hidden_size", "64"), "hidden_size is '64'"),
    (setting("config.json", "text_config.num_attention_heads", 7), "a multiple of the 7 heads"),
    (setting("config.json", "text_config.rms_norm_eps", 0), "rms_norm_eps is 0"),
    (setting("config.json", "text_config.use_sliding_window", True), "use_sliding_window is True"),
    (setting("config.json", "text_config.rope_scaling.rope_type", "yarn"), "rope_type is 'yarn'"),
    (
        setting("config.json", "text_config.rope_scaling.mrope_section", [1, 1, 1]),
        "mrope_section is [1, 1, 1]; three numbers that sum to 8",
    ),
    (
        setting("config.json", "vision_config.fullatt_block_indexes", [0, 3]),
        "vision_config.fullatt_block_indexes is [0, 3]",
    ),
    (setting("config.json", "vision_config.spatial_merge_size", 4), "spatial_merge_size is 4"),
    (setting("config.json", "vision_config.num_heads", 3), "num_heads is 3; a divisor of the t"),
    (setting("config.json", "text_config.num_key_value_heads", 3), "a divisor of the 4 heads is"),
    (
        without("tokenizer.json", "added_tokens"),
        "there is no token <|vision_start|>, which profile jina",
    ),
    (setting("config.json", "multi_vector_projector_dim", 12), "config.json asks for [12"),
    (setting("config.json", "task_names", ["../x"]), "task_names is ['../x']"),
    (setting("config.json", "text_config.vocab_size", 10), "config.json asks for [10, 64]"),
    (setting("config.json", "text_config.num_hidden_layers", 4), "layers.3.input_layernorm.weight"),
    (setting("config.json", "text_config.num_hidden_layers", 2), "is not known in a Jina"),
    (setting("preprocessor_config.json", "image_std", [0, 1, 1]), "image_std is [0, 1, 1]"),
    (setting("preprocessor_config.json", "image_mean", [0, 1e30, 1]), "of a size from 1e-6 to 1e6"),
    (setting("preprocessor_config.json", "image_mean", [0, math.nan, 1]), "image_mean is [0, nan"),
    (setting("preprocessor_config.json", "image_std", [1, 2**64, 1]), "of a size from 1e-6 to 1e6"),
    (setting("preprocessor_config.json", "image_std", "A" * 10**5), f"is '{'A' * 199}...; three"),
    (setting("preprocessor_config.json", "max_pixels", -1), "max_pixels is -1"),
    (setting("preprocessor_config.json", "max_pixels", 1), "max_pixels is 1, below min_pixels"),
    (setting("tokenizer.json", "model.type", "Unigram"), "model.type is 'Unigram'"),
    (setting("tokenizer.json", "pre_tokenizer", None), "pre_tokenizer is None"),
    (setting("tokenizer.json", "model.merges", []), "model.merges is empty"),
    (setting("tokenizer.json", "model.vocab", {"a": 800}), "'a' has id 800"),
    (setting("tokenizer.json", "model.vocab", {"a": 0, "b": 0}), "'a' and 'b' share id 0"),
    (
        edit("tokenizer.json", lambda root: root["added_tokens"][0].__setitem__("content", "h")),
        "cannot be loaded: text.gguf: 1 tokens of the vocabulary occur twice",
    ),
    (setting("tokenizer.json", "added_tokens", ["x"]), "added_tokens has the entry 'x'"),
    (setting("tokenizer.json", "added_tokens", 3), "added_tokens is 3; a list is needed"),
    (
        setting("tokenizer.json", "added_tokens", [{"content": "x", "id": 0, "special": None}]),
        "content, id and special, true or false, is needed",
    ),
    (
        setting("tokenizer.json", "added_tokens", [ADDED | {"content": ""}]),
        "0 is ''; a text is needed",
    ),
    (
        setting("tokenizer.json", "added_tokens", [ADDED | {"content": 7}]),
        "0 is 7; a text is needed",
    ),
    (
        setting("tokenizer.json", "added_tokens", [ADDED | {"content": "\ud800"}]),
        r"0 is '\ud800'; a text is needed",
    ),
    (setting("tokenizer.json", "model.merges", ["h e", {}]), "model.merges has the entry {}"),
    (setting("tokenizer.json", "model.merges", ["h"]), "model.merges has the entry 'h'"),
    (setting("tokenizer.json", "model.merges", 3), "model.merges is 3; a list is needed"),
    (setting("tokenizer.json", "model.merges", ["h \u00ff\u00ff"]), "there is no token 'ÿÿ'"),
    (setting("tokenizer_config.json", "chat_template", [1]), "its settings cannot be written"),
    (setting("tokenizer_config.json", "chat_template", "\ud800"), "its settings cannot be written"),
    (rewrite(lambda named: named.pop(UP)), "tensor layers.1.mlp.up_proj.weight, [160, 64], is mis"),
    (rewrite(lambda named: named.update({UP: named[UP].T})), f"tensor {UP} has shape [64, 160]"),
    (rewrite(lambda named: named.update(x=named[UP])), "tensor x is not known"),
    (
        rewrite(lambda named: named.update({f"model.language_{UP}": named[UP]})),
        "is there twice",
    ),
    (poke(UP, np.nan), f"tensor {UP} holds NaN or infinity"),
    (poke("visual.patch_embed.proj.weight", np.inf), "visual.patch_embed.proj.weight holds NaN"),
    (poke("multi_vector_projector.bias", np.nan), "multi_vector_projector.bias holds NaN"),
    (cut("model.safetensors", 1), "it is cut short"),
    (head(b"{"), "not a safetensors file"),
    (head(b"[]"), "not a safetensors file"),
    (head(b"[" * 100_000), "not a safetensors file"),
    (head(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'), "entry of tensor a is dam"),
    (head(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}'), "tensor a has 4 bytes"),
    (head(b'{"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}'), "tensor a has dtype 'I8'"),
    (head(b'{"a":7}'), "entry of tensor a is damaged"),
    (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 99) and None, "not a safetensors"),
    (lambda f: (f / "model.safetensors").write_bytes(b"") and None, "not a safetensors"),
    (
        setting("adapters/adapter_config.json", "lora_alpha", math.inf),
        "lora_alpha is inf; a finite",
    ),
    (setting("adapters/adapter_config.json", "use_rslora", True), "use_rslora is True"),
    (without("adapters/adapter_config.json", "lora_alpha"), "lora_alpha is missing"),
    (adapters(lambda pairs: pairs.pop(LORA)), "lora_A of task code for layers.2.mlp.up_proj.wei"),
    (adapters(lambda pairs: pairs.update({LORA: pairs[LORA][:, :-1]})), "fits model.layers.2.mlp"),
    (adapters(lambda pairs: pairs.update(x=pairs[LORA])), "tensor x adapts no linear layer"),
    (adapters(lambda pairs: pairs.clear()), "it holds no adapter"),
    (
        adapters(lambda pairs: pairs.update({LORA.replace("code", "new"): pairs[LORA]})),
        "is of task new; config.json has retrieval, text-matching, code",
    ),
    (
        adapters(lambda pairs: pairs[LORA].__setitem__(0, np.nan)),
        f"tensor {LORA} holds NaN or infinity",
    ),
]


@pytest.mark.parametrize(("damage", "words"), CASES, ids=[words[:40] for _, words in CASES])
def test_damage_is_named_and_leaves_nothing(
    damage: Damage, words: str, folder: Path, tmp_path: Path
) -> None:
    damage(folder)
    with pytest.raises(ModelLoadError) as caught:
        convert(folder, tmp_path / "out")
    assert words in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["jina"]


def test_index_that_names_what_is_not_there(tmp_path: Path) -> None:
    source = checkpoint.write(MODEL, tmp_path / "in", shards=2)
    index = source / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    first = next(iter(weight_map))
    for damaged, words in (
        ({**weight_map, "y": weight_map[first]}, "tensor y is not in model-00001"),
        ({**weight_map, first: "model-00002-of-00002.safetensors"}, f"tensor {first} is not in"),
        ({**weight_map, first: "../x.safetensors"}, "weight_map is no object"),
        ({**weight_map, first: "x.safetensors"}, "x.safetensors: there is no such file"),
        ([], "weight_map is no object"),
    ):
        checkpoint.write_json(index, {"weight_map": damaged})
        with pytest.raises(ModelLoadError) as caught:
            convert(source, tmp_path / "out")
        assert words in str(caught.value)


@pytest.mark.parametrize(("kind", "most"), [("f16", 65_504), ("q8_0", 8_319_008)])
def test_numbers_that_a_type_cannot_hold(
    kind: Any, most: int, folder: Path, tmp_path: Path
) -> None:
    poke(UP, -2 * most)(folder)
    with pytest.raises(ModelLoadError, match=f"above {most:,}; bf16 or f32 holds them"):
        convert(folder, tmp_path / "out", text_type=kind)
    convert(folder, tmp_path / "out", text_type="bf16")
    poke(UP, most)(folder)
    out = convert(folder, tmp_path / kind, text_type=kind)
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(out / "text.gguf").tensors}
    written = found["blk.1.ffn_up.weight"]
    assert gguf.quants.dequantize(written.data, written.tensor_type)[-1, -1] == most


def test_an_adapter_that_overflows_its_weights(folder: Path, tmp_path: Path) -> None:
    adapters(lambda pairs: pairs[LORA].__imul__(1e4))(folder)
    setting("adapters/adapter_config.json", "lora_alpha", 1e38)(folder)
    with pytest.raises(ModelLoadError, match="exceeds float32 once the adapter is added"):
        convert(folder, tmp_path / "out", merge="code")
    assert [path.name for path in tmp_path.iterdir()] == ["jina"]


ODD: tuple[Any, ...] = (None, True, -1, 2**70, 0.5, math.nan, "", "x", [[1]], [3, 2, 1], {"1": 5})
SETTINGS = (
    "config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "adapters/adapter_config.json",
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of a JSON file, and of long objects and lists the first."""
    yield at
    keys = list(value) if isinstance(value, dict) else range(2) if isinstance(value, list) else ()
    for key in itertools.islice(keys, 40 if len(at) < 2 else 2):
        if isinstance(value, dict) or key < len(value):
            yield from places(value[key], (*at, key))


@pytest.mark.parametrize("name", SETTINGS)
def test_an_odd_value_of_any_key(name: str, folder: Path, tmp_path: Path) -> None:
    """It is refused by an error of ours, or taken and the files are whole."""
    text = (folder / name).read_text()
    for i, at in enumerate(places(json.loads(text))):
        for value in (ODD[i % len(ODD)], ODD[(i + 4) % len(ODD)]):
            root = {"": json.loads(text)}
            *inner, last = ("", *at)
            place: Any = root
            for key in inner:
                place = place[key]
            place[last] = value
            checkpoint.write_json(folder / name, root[""])
            out = tmp_path / "out"
            with contextlib.suppress(ModelLoadError, InputError):
                open_bundle(convert(folder, out))
            shutil.rmtree(out, ignore_errors=True)
            assert [path.name for path in tmp_path.iterdir()] == ["jina"], (at, value)
