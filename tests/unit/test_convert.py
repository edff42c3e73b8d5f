"""Conversion without torch: names, types, errors, and that a folder appears whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from jmm import bundle, cli
from jmm.convert import convert, gguf_file
from jmm.convert import tensors as tensor_files
from jmm.errors import InputError, MissingExtraError, ModelLoadError
from support import checkpoint, gguf_writer, tiny

MODEL = tiny.MODELS["qwen25_small"]
PROFILES = {
    "JinaEmbeddingsV4Model": "jina-embeddings-v4",
    "ColQwen2_5": "colqwen2.5",
    "ColQwen2ForRetrieval": "colqwen2-hf",
}


@pytest.fixture(scope="session")
def jina(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint.write(MODEL, tmp_path_factory.mktemp("jina") / "jina", checkpoint.JINA)


@pytest.fixture
def folder(jina: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(jina, tmp_path / "jina"))


def tensors(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    reader = gguf.GGUFReader(path)
    return {
        tensor.name: (
            tensor.tensor_type.name,
            gguf.quants.dequantize(tensor.data, tensor.tensor_type),
        )
        for tensor in reader.tensors
    }


def key(path: Path, name: str) -> Any:
    return gguf.GGUFReader(path).fields[name].contents()


@pytest.mark.parametrize(
    ("name", "kind", "shards"),
    [
        ("qwen25_small", checkpoint.PLAIN, 1),
        ("qwen25_small", checkpoint.OLD, 3),
        ("qwen25_small", checkpoint.JINA, 2),
        ("qwen25_small", checkpoint.COLQWEN, 1),
        ("qwen25_small", checkpoint.COLQWEN_OLD, 1),
        ("qwen2_small", checkpoint.COLQWEN_HF, 1),
        ("qwen25_small", checkpoint.COLQWEN_HF, 1),
        ("qwen2_small", checkpoint.OLD, 1),
        ("qwen25_head80", checkpoint.PLAIN, 2),
    ],
)
def test_every_layout_gives_the_same_weights(
    name: str, kind: checkpoint.Kind, shards: int, tmp_path: Path
) -> None:
    model = tiny.MODELS[name]
    weights = tiny.weights(model)
    source = checkpoint.write(model, tmp_path / "in", kind, shards=shards)
    out = convert(source, tmp_path / "out")
    right = dict(gguf_writer.text_tensors(weights))
    if kind.projector is not None:
        right |= checkpoint.projector(model)
    for file, expected in (("text", right), ("mmproj", dict(gguf_writer.vision_tensors(weights)))):
        found = tensors(out / f"{file}.gguf")
        assert found.keys() == expected.keys()
        for tensor, values in expected.items():
            np.testing.assert_array_equal(found[tensor][1], values, err_msg=tensor)
    manifest = json.loads((out / "jmm.json").read_text())
    is_jina = kind is checkpoint.JINA
    assert manifest["profile"] == PROFILES.get(kind.architecture, "qwen2.5-vl")
    assert manifest["dim"] == model.hidden
    assert manifest["multi_vector_dim"] == (checkpoint.PROJECTOR_DIM if kind.projector else None)
    assert sorted(manifest["adapters"]) == (sorted(checkpoint.TASKS) if is_jina else [])


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_auto_keeps_the_numbers(dtype: checkpoint.Dtype, tmp_path: Path) -> None:
    source = checkpoint.write(MODEL, tmp_path / "in", dtype=dtype)
    found = tensors(convert(source, tmp_path / "out") / "text.gguf")
    for name, values in gguf_writer.text_tensors(tiny.weights(MODEL)):
        kind, written = found[name]
        assert kind == ("F32" if values.ndim == 1 else dtype)
        np.testing.assert_array_equal(written, checkpoint.round_to(values, dtype))


def test_adapters_separate_and_merged(jina: Path, tmp_path: Path) -> None:
    weights = tiny.weights(MODEL)
    out = convert(jina, tmp_path / "out")
    for task in checkpoint.TASKS:
        adapter = out / f"adapter-{task}.gguf"
        assert key(adapter, "adapter.lora.alpha") == checkpoint.ALPHA
        pairs = tensors(adapter)
        assert len(pairs) == 2 * (7 * MODEL.layers + 1)
        right = checkpoint.merged(MODEL, weights, task)
        by_name = dict(gguf_writer.text_tensors(right))
        by_name["multi_vector_projector.weight"] = right["multi_vector_projector.weight"]
        merged = tensors(convert(jina, tmp_path / task, merge=task) / "text.gguf")
        base = tensors(out / "text.gguf")
        for name in {pair.rsplit(".", 1)[0] for pair in pairs}:
            low, high = pairs[f"{name}.lora_a"][1], pairs[f"{name}.lora_b"][1]
            change = checkpoint.ALPHA / checkpoint.RANK * (high.astype(np.float64) @ low)
            np.testing.assert_allclose(base[name][1] + change, by_name[name], atol=1e-6)
            np.testing.assert_allclose(merged[name][1], by_name[name], atol=1e-6)
        assert sorted(path.name for path in (tmp_path / task).iterdir()) == [
            "jmm.json",
            "mmproj.gguf",
            "text.gguf",
        ]
        assert json.loads((tmp_path / task / "jmm.json").read_text())["merged"] == task


def test_small_pieces_give_the_same_file(
    jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {"text_type": "q8_0", "vision_type": "bf16", "merge": "code"}
    whole = convert(jina, tmp_path / "whole", **types)
    monkeypatch.setattr(gguf_file, "_PIECE", 200)
    cut = convert(jina, tmp_path / "cut", **types)
    for name in ("text.gguf", "mmproj.gguf"):
        assert (whole / name).read_bytes() == (cut / name).read_bytes()


def test_memory_does_not_grow_with_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_file, "_PIECE", 1 << 14)
    peaks = []
    for factor in (1, 8):
        size = {"v_ffn": 512 * factor, "ffn": 1024 * factor}
        model = tiny.TinyModel(**{**vars(MODEL), **size})
        source = checkpoint.write(model, tmp_path / f"in{factor}")
        tracemalloc.start()
        convert(source, tmp_path / f"out{factor}", text_type="bf16", vision_type="q8_0")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    largest = 1024 * 8 * MODEL.hidden * 4
    assert peaks[1] - peaks[0] < largest / 4


# --- the manifest ---


def test_manifest_and_bundle(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out", max_pixels=200_704)
    manifest = json.loads((out / "jmm.json").read_text())
    for name, facts in manifest["source"].items():
        data = (jina / name).read_bytes()
        assert facts == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert set(manifest["source"]) == {
        path.relative_to(jina).as_posix() for path in jina.rglob("*") if path.is_file()
    }
    found = bundle.open_bundle(out)
    assert found.dims == checkpoint.DIMS
    assert found.tasks == ()
    assert found.arguments == {
        "model": str(out / "text.gguf"),
        "mmproj": str(out / "mmproj.gguf"),
        "adapters": {task: str(out / f"adapter-{task}.gguf") for task in checkpoint.TASKS},
        "profile": "jina-embeddings-v4",
        "min_pixels": checkpoint.MIN_PIXELS,
        "max_pixels": 200_704,
    }
    assert key(out / "text.gguf", "jmm.profile") == "jina-embeddings-v4"
    assert key(out / "mmproj.gguf", "clip.vision.image_max_pixels") == checkpoint.MAX_PIXELS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format is 2; 1 is supported"),
        ({"model": "../text.gguf"}, "model is '../text.gguf'; the name of a file"),
        ({"model": None}, "model is None"),
        ({"mmproj": 3}, "mmproj is 3; str or null"),
        ({"adapters": {"code": "/etc/passwd"}}, "adapters is"),
        ({"adapters": []}, "adapters is"),
        ({"max_pixels": True}, "max_pixels is True"),
        ({"dims": [0]}, "dims is"),
    ],
)
def test_damaged_manifest(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    manifest = {"format": 1, "model": "text.gguf", "mmproj": "mmproj.gguf"}
    checkpoint.write_json(tmp_path / "jmm.json", manifest)
    assert bundle.open_bundle(tmp_path).arguments["mmproj"] == str(tmp_path / "mmproj.gguf")
    checkpoint.write_json(tmp_path / "jmm.json", manifest | change)
    with pytest.raises(ModelLoadError, match=r"jmm\.json") as caught:
        bundle.open_bundle(tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_manifest_that_is_no_object(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "jmm.json").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"jmm\.json"):
        bundle.open_bundle(tmp_path)


def test_folder_without_manifest(tmp_path: Path) -> None:
    assert not bundle.is_bundle(tmp_path)
    assert not any(map(bundle.is_bundle, (None, 3, tmp_path / "x", tmp_path / "text.gguf")))
    with pytest.raises(ModelLoadError, match="there is no such file"):
        bundle.open_bundle(tmp_path)


# --- what cannot be converted ---


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        checkpoint.write_json(folder / name, change(value) or value)

    return apply


def setting(file: str, path: str, value: Any) -> Callable[[Path], None]:
    def change(root: Any) -> None:
        *inner, last = path.split(".")
        for name in inner:
            root = root[name]
        root[last] = value

    return edit(file, change)


def without(file: str, path: str) -> Callable[[Path], None]:
    def change(root: Any) -> None:
        *inner, last = path.split(".")
        for name in inner:
            root = root[name]
        del root[last]

    return edit(file, change)


def rewrite(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    """Writes the weights again after a change of ``{name: array}``."""

    def apply(folder: Path) -> None:
        stored = tiny.weights(MODEL) | checkpoint.projector(MODEL)
        named = {
            checkpoint.rename(name, checkpoint.JINA): values.copy()
            for name, values in stored.items()
        }
        change(named)
        checkpoint.save(named, folder / "model.safetensors")

    return apply


def poke(name: str, value: float) -> Callable[[Path], None]:
    return rewrite(lambda named: named[name].reshape(-1).__setitem__(-1, value))


def adapters(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        pairs = {
            f"base_model.model.{module}.lora_{side}.{task}.weight": values
            for task in checkpoint.TASKS
            for module, both in checkpoint.lora(MODEL, task, tiny.weights(MODEL)).items()
            for side, values in zip("AB", both, strict=True)
        }
        change(pairs)
        checkpoint.save(pairs, folder / "adapters" / "adapter_model.safetensors")

    return apply


def cut(name: str, n_bytes: int) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) - n_bytes])

    return apply


def head(text: bytes) -> Callable[[Path], None]:
    """Weights whose header is ``text``."""
    data = len(text).to_bytes(8, "little") + text
    return lambda folder: (folder / "model.safetensors").write_bytes(data) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


UP = "model.layers.1.mlp.up_proj.weight"
LORA = "base_model.model.model.language_model.layers.2.mlp.up_proj.lora_A.code.weight"
ADDED = {"id": 0, "special": True}

CASES: list[tuple[Callable[[Path], None], str]] = [
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
    (without("config.json", "text_config.hidden_size"), "text_config.hidden_size is missing"),
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
    (
        setting("config.json", "vision_config.num_heads", 3),
        "cannot be loaded: mmproj.gguf: 64 comp",
    ),
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
    (setting("tokenizer.json", "added_tokens", ["x"]), "added_tokens has the entry 'x'"),
    (
        setting("tokenizer.json", "added_tokens", [ADDED | {"content": 7}]),
        "0 is 7; a text is needed",
    ),
    (
        setting("tokenizer.json", "added_tokens", [ADDED | {"content": "\ud800"}]),
        r"0 is '\ud800'; a text is needed",
    ),
    (setting("tokenizer.json", "model.merges", ["a b", {}]), "model.merges has the entry {}"),
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
    damage: Callable[[Path], None], words: str, folder: Path, tmp_path: Path
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
    written = tensors(out / "text.gguf")["blk.1.ffn_up.weight"][1]
    assert written[-1, -1] == most


def test_an_adapter_that_overflows_its_weights(folder: Path, tmp_path: Path) -> None:
    adapters(lambda pairs: pairs[LORA].__imul__(1e4))(folder)
    setting("adapters/adapter_config.json", "lora_alpha", 1e38)(folder)
    with pytest.raises(ModelLoadError, match="exceeds float32 once the adapter is added"):
        convert(folder, tmp_path / "out", merge="code")
    assert [path.name for path in tmp_path.iterdir()] == ["jina"]


# --- arguments and the folder ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text_type": "q4_k"}, "text_type is 'q4_k'; allowed are auto, f32"),
        ({"merge": "clustering"}, "merge is 'clustering'; the checkpoint's adapters are retrieval"),
        ({"merge": "code", "use_adapters": False}, "one excludes the other"),
        ({"profile": "x"}, "profile is 'x'; known profiles are"),
        ({"max_pixels": 0}, "max_pixels is 0"),
        ({"min_pixels": "9"}, "min_pixels is '9'"),
    ],
)
def test_wrong_arguments(options: Any, words: str, jina: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        convert(jina, tmp_path / "out", **options)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_adapters(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out", use_adapters=False)
    assert bundle.open_bundle(out).arguments["adapters"] is None
    assert not any(
        "adapters" in name for name in json.loads((out / "jmm.json").read_text())["source"]
    )


def test_an_existing_folder_is_kept(jina: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    with pytest.raises(InputError, match="exists; pass overwrite=True"):
        convert(jina, out)
    with pytest.raises(InputError, match="it is no converted model and is kept"):
        convert(jina, out, overwrite=True)
    assert (out / "mine").read_text() == "x"
    with pytest.raises(InputError, match="there is no such folder"):
        convert(jina, tmp_path / "no" / "out")
    with pytest.raises(ModelLoadError, match="a Hugging Face checkpoint is needed"):
        convert(tmp_path / "nothing", tmp_path / "new")


def test_overwriting_replaces_all_or_nothing(folder: Path, tmp_path: Path) -> None:
    out = convert(folder, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    poke("multi_vector_projector.bias", np.nan)(folder)
    with pytest.raises(ModelLoadError):
        convert(folder, out, overwrite=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    rewrite(lambda named: None)(folder)
    convert(folder, out, overwrite=True, merge="code")
    assert sorted(path.name for path in out.iterdir()) == ["jmm.json", "mmproj.gguf", "text.gguf"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jina", "out"]


def test_an_interrupt_leaves_nothing(
    jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jmm.convert.conversion._sha256", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(jina, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_nothing(jina: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from jmm.cli import main\n"
        "from jmm.convert import conversion\n"
        "conversion._sha256 = lambda *_: (print('half', flush=True), time.sleep(100))\n"
        "sys.exit(main(['convert', *sys.argv[1:]]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(jina), str(tmp_path / "out")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
        process.terminate()
        assert process.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(InputError, match=r"[23],\d{3},\d{3} bytes are needed and 1,000,000 are"):
        convert(jina, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_appears_meanwhile_is_kept(
    jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, overwrite: bool
) -> None:
    def appears(*_: object) -> str:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "mine").write_text("x")
        return ""

    monkeypatch.setattr("jmm.convert.conversion._sha256", appears)
    with pytest.raises(InputError, match=r"out (exists; pass|holds no jmm\.json)"):
        convert(jina, tmp_path / "out", overwrite=overwrite)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_an_earlier_folder_outlives_a_failing_exchange(
    error: BaseException, failing: int, jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = convert(jina, tmp_path / "out")
    before = (out / "jmm.json").read_bytes()
    rename, calls = os.rename, []

    def breaks(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == failing:
            raise error
        rename(source, target)

    monkeypatch.setattr("os.rename", breaks)
    with pytest.raises((KeyboardInterrupt, InputError)) as caught:
        convert(jina, out, overwrite=True, merge="code")
    if isinstance(error, OSError):
        assert str(caught.value) == f"{out} cannot be written: broken"
    assert (out / "jmm.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_checkpoint_inside_is_not_overwritten(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out")
    source = Path(shutil.copytree(jina, out / "deep" / "hf"))
    (tmp_path / "link").symlink_to(source)
    for given in (source, tmp_path / "link"):
        with pytest.raises(InputError, match="out holds the checkpoint"):
            convert(given, out, overwrite=True)
    shutil.copy(out / "jmm.json", source)
    with pytest.raises(InputError, match="hf holds the checkpoint"):
        convert(source, source, overwrite=True)
    assert (source / "model.safetensors").is_file()


def test_a_disk_that_fills_up_meanwhile(jina: Path, tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from jmm.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "sys.exit(main(['convert', *sys.argv[1:]]))"
    )
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", code, str(jina), str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"jmm: {out} cannot be written: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_cannot_be_read(jina: Path, folder: Path, tmp_path: Path) -> None:
    source = tensor_files.find(folder)["model.norm.weight"]
    source.path.unlink()
    with pytest.raises(ModelLoadError, match=r"norm\.weight cannot be read: No such file"):
        source.array()


def test_command(jina: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["convert", str(jina), str(out), "--text-type", "q8_0"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert tensors(out / "text.gguf")["token_embd.weight"][0] == "Q8_0"
    assert cli.main(["convert", str(jina), str(out), "--overwrite", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"folder": str(out), **json.loads((out / "jmm.json").read_text())}
    assert cli.main(["convert", str(jina), str(out), "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert cli.main(["convert", str(jina), str(out)]) == 1
    assert "exists" in capsys.readouterr().err


def test_progress_counts_every_byte(
    jina: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["convert", str(jina), str(tmp_path / "out"), "--text-type", "q8_0"]
    assert cli.main(arguments) == 0
    assert "%" not in capsys.readouterr().err  # no terminal
    advanced: list[int] = []
    totals: list[int] = []

    @contextmanager
    def bar(total: int, *, shown: bool, unit: str) -> Iterator[Callable[[int], None]]:
        assert (shown, unit) == (True, "B")
        totals.append(total)
        yield advanced.append

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jmm.convert.conversion.progress_bar", bar)
        convert(jina, tmp_path / "other", text_type="q8_0", show_progress=True)
    assert len(advanced) > 100
    assert [sum(advanced)] == totals


def test_without_the_extra() -> None:
    code = (
        "import sys; sys.modules['gguf'] = None\n"
        "from jmm.cli import main\n"
        "sys.exit(main(['convert', 'a', 'b']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "jmm: conversion needs gguf: pip install gguf\n"
    assert issubclass(MissingExtraError, ImportError)
