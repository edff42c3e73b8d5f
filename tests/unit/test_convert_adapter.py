"""Checkpoints that are an adapter alone, as ColQwen's are published."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from jmm import cli
from jmm.convert import convert
from jmm.errors import InputError, ModelLoadError
from support import checkpoint, gguf_writer, tiny

MODEL = tiny.MODELS["qwen25_small"]
TASK = "code"
PLAIN = ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json")


def named(name: str) -> str:
    """A module as PEFT names it, which is given a ColQwen2_5."""
    return checkpoint.rename(name, checkpoint.COLQWEN)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint.write(MODEL, tmp_path_factory.mktemp("base") / "base", checkpoint.COLQWEN)


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """With tokenizer and processor, as published."""
    pairs = checkpoint.lora(MODEL, TASK, tiny.weights(MODEL))
    folder = tmp_path / "colqwen2.5-v9"
    checkpoint.write_adapter_alone(folder, {named(name): pair for name, pair in pairs.items()})
    for name in PLAIN:
        shutil.copy(base / name, folder)
    return folder


def check(out: Path) -> None:
    right = checkpoint.merged(MODEL, tiny.weights(MODEL), TASK)
    expected = dict(gguf_writer.text_tensors(right)) | {
        name: values for name, values in right.items() if name.startswith(checkpoint.PROJECTOR)
    }
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(out / "text.gguf").tensors}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6, err_msg=name)


def test_it_is_added_to_the_weights(adapter: Path, base: Path, tmp_path: Path) -> None:
    out = convert(adapter, tmp_path / "out", base=base)
    check(out)
    assert sorted(path.name for path in out.iterdir()) == ["jmm.json", "mmproj.gguf", "text.gguf"]
    manifest = json.loads((out / "jmm.json").read_text())
    assert (manifest["profile"], manifest["adapters"], manifest["merged"]) == (
        "colqwen2.5",
        {},
        None,
    )
    of_base = {f"base/{name}": base / name for name in ("config.json", "model.safetensors", *PLAIN)}
    of_adapter = {path.name: path for path in adapter.iterdir()}
    assert set(manifest["source"]) == set(of_base | of_adapter)
    for name, facts in manifest["source"].items():
        data = (of_base | of_adapter)[name].read_bytes()
        assert facts == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_what_it_lacks_is_the_models(adapter: Path, base: Path, tmp_path: Path) -> None:
    for name in PLAIN:
        (adapter / name).unlink()
    check(convert(adapter, tmp_path / "out", base=base))


def test_command(adapter: Path, base: Path, tmp_path: Path) -> None:
    arguments = ["convert", str(adapter), str(tmp_path / "out"), "--base", str(base), "--quiet"]
    assert cli.main(arguments) == 0
    check(tmp_path / "out")


def rewrite(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        pairs = {
            named(name): list(pair)
            for name, pair in checkpoint.lora(MODEL, TASK, tiny.weights(MODEL)).items()
        }
        change(pairs)
        checkpoint.write_adapter_alone(folder, pairs)

    return apply


def setting(key: str, value: Any) -> Callable[[Path], None]:
    path = "adapter_config.json"
    return lambda folder: checkpoint.write_json(
        folder / path, json.loads((folder / path).read_text()) | {key: value}
    )


UP = "language_model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (setting("peft_type", "IA3"), "peft_type is 'IA3'; 'LORA' is supported"),
        (setting("lora_bias", True), "lora_bias is True; only plain LoRA is supported"),
        (setting("use_dora", True), "use_dora is True"),
        (
            rewrite(lambda pairs: pairs.update({UP: pairs[UP][::-1]})),
            "fits language_model.lay",
        ),
        (
            rewrite(lambda pairs: pairs.update({"visual.blocks.0.attn.proj": pairs[UP]})),
            "adapts no linear layer of the language model",
        ),
        (
            rewrite(lambda pairs: pairs.update({f"{UP}.lora_A.code.weight.x": pairs.pop(UP)})),
            "adapts no linear layer of the language model",
        ),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "there is no such file"),
    ],
)
def test_damage_is_named(
    damage: Callable[[Path], None], words: str, adapter: Path, base: Path, tmp_path: Path
) -> None:
    damage(adapter)
    with pytest.raises(ModelLoadError) as caught:
        convert(adapter, tmp_path / "out", base=base)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_adapter_of_a_task(adapter: Path, base: Path, tmp_path: Path) -> None:
    pairs = checkpoint.lora(MODEL, TASK, tiny.weights(MODEL))
    tensors = {
        f"base_model.model.{named(name)}.lora_{side}.code.weight": values
        for name, pair in pairs.items()
        for side, values in zip("AB", pair, strict=True)
    }
    checkpoint.save(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(ModelLoadError, match="is of task code; the adapter has none"):
        convert(adapter, tmp_path / "out", base=base)


def test_without_its_model(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"an adapter alone; .* its model, org/base, as base"):
        convert(adapter, tmp_path / "out")
    setting("base_model_name_or_path", None)(adapter)
    with pytest.raises(ModelLoadError, match=r"the folder of its model as base \(--base\)"):
        convert(adapter, tmp_path / "out")


def test_what_base_does_not_go_with(adapter: Path, base: Path, tmp_path: Path) -> None:
    jina = checkpoint.write(MODEL, tmp_path / "jina", checkpoint.JINA)
    for source, options, words in (
        (base, {"base": base}, "holds no adapter alone"),
        (adapter, {"base": jina}, "which has adapters of its own"),
        (adapter, {"base": base, "use_adapters": False}, "convert that folder instead"),
        (adapter, {"base": base, "merge": TASK}, "merge is 'code'; the checkpoint's adapters are"),
    ):
        with pytest.raises(InputError, match=words):
            convert(source, tmp_path / "out", **options)
    with pytest.raises(ModelLoadError, match="there is no such folder"):
        convert(adapter, tmp_path / "out", base=tmp_path / "nothing")
