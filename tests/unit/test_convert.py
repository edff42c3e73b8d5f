"""Conversion without torch: names, types, errors, and that a folder appears whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
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

from jmm import Embedder, VisionEncoder, bundle, cli
from jmm.convert import convert, gguf_file
from jmm.convert import tensors as tensor_files
from jmm.errors import InputError, MissingExtraError, ModelLoadError
from support import checkpoint, gguf_writer, tiny
from support.damage import poke, rewrite

MODEL = tiny.MODELS["qwen25_small"]
PROFILES = {
    "JinaEmbeddingsV4Model": "jina-embeddings-v4",
    "ColQwen2_5": "colqwen2.5",
    "ColQwen2ForRetrieval": "colqwen2-hf",
}


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
        ({"overwrite": "no"}, "overwrite is 'no'; True or False"),
        ({"use_adapters": 0}, "use_adapters is 0; True or False"),
        ({"show_progress": "x"}, "show_progress is 'x'; True or False"),
        ({"base": 3}, "base is 3; the path of a file"),
        ({"checkpoint": "a\0b"}, r"checkpoint is 'a\x00b'; the path of a file"),
        ({"out": "a\0b"}, r"out is 'a\x00b'; the path of a file"),
        ({"checkpoint": "a" * 999}, "File name too long"),
        ({"out": "a" * 999}, "File name too long"),
    ],
)
def test_wrong_arguments(options: Any, words: str, jina: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        convert(**{"checkpoint": jina, "out": tmp_path / "out"} | options)
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
    profile = "jina-embeddings-v4 (the architecture is JinaEmbeddingsV4Model)"
    assert capsys.readouterr().out == f"{out}: profile {profile}\n"
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


def test_what_is_converted_already(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out")
    with pytest.raises(ModelLoadError, match="out: it is converted already; Embedder takes"):
        convert(out, tmp_path / "again")


def test_faults_of_a_folder_are_no_faults_of_the_caller(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out", merge="code")
    with Embedder(out, n_threads=1) as embedder:
        assert embedder.info["profile_reason"] == "named by jmm.json"
        with pytest.raises(InputError, match="merged into the weights is for code"):
            embedder.encode_query("a", task="retrieval")
    manifest = json.loads((out / "jmm.json").read_text())
    for change, words in (
        ({"profile": "jina-embeddings-v9"}, "jina-embeddings-v9"),
        ({"max_pixels": 10}, r"max_pixels is 10; it is below min_pixels, 3136"),
        ({"min_pixels": -1}, "min_pixels is -1; a whole number"),
    ):
        checkpoint.write_json(out / "jmm.json", manifest | change)
        for load in (Embedder, VisionEncoder):
            with pytest.raises(ModelLoadError, match=words):
                load(out)
