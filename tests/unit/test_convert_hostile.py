"""Checkpoints that nobody wrote in good faith, and folders with odd names."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from jmm import bundle
from jmm.convert import convert
from jmm.errors import InputError, JmmError, ModelLoadError
from support import checkpoint, tiny

MODEL = tiny.MODELS["qwen25_small"]
TENSOR = "model.norm.weight"
ODD: list[Any] = [None, True, 5, -1.5, float("inf"), 10**30, "x", [], [[1]], {}, {"a": {}}]


def refused(folder: Path) -> str:
    """What converting says, which leaves nothing behind."""
    before = sorted(folder.parent.iterdir())
    with pytest.raises(ModelLoadError) as caught:
        convert(folder, folder.parent / "out")
    assert sorted(folder.parent.iterdir()) == before
    return str(caught.value)


def change(path: Path, edit: Callable[[Any], object]) -> None:
    value = json.loads(path.read_bytes())
    edit(value)
    checkpoint.write_json(path, value)


def change_header(path: Path, edit: Callable[[Any], object]) -> None:
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    edit(header)
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_values_of_any_type_in_the_tokenizer(value: Any, folder: Path) -> None:
    file = folder / "tokenizer.json"
    whole = json.loads(file.read_bytes())
    for key in ("added_tokens", "model", "pre_tokenizer", "post_processor"):
        checkpoint.write_json(file, whole | {key: value})
        try:
            convert(folder, folder.parent / "out")
        except ModelLoadError as error:
            assert "tokenizer" in str(error)  # noqa: PT017
        else:
            shutil.rmtree(folder.parent / "out")
    inner = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": value}}
    checkpoint.write_json(file, whole | inner)
    assert "the one of Qwen2 is supported" in refused(folder)


def test_a_pre_tokenizer_deep_inside_others(folder: Path) -> None:
    def deepen(root: Any) -> None:
        for _ in range(300):
            root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [root["pre_tokenizer"]]}

    change(folder / "tokenizer.json", deepen)
    assert "the one of Qwen2 is supported" in refused(folder)


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_values_of_any_type_in_the_header(value: Any, folder: Path) -> None:
    file = folder / "model.safetensors"
    for key in ("dtype", "shape", "data_offsets"):
        whole = file.read_bytes()
        change_header(file, lambda header, key=key: header[TENSOR].update({key: value}))
        assert f"tensor {TENSOR}" in refused(folder)
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "head",
    [
        "license: [1]",
        "license: [[x]]",
        "license: 2024-01-01",
        "license: &a [*a]",
        ": : [",
        "? [a]\n: b",
        "x: !!python/object:os.system {}",
        "\0",
        "[" * 5_000,
    ],
)
def test_a_card_that_cannot_be_read_is_left_out(head: str, folder: Path) -> None:
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
    out = convert(folder, folder.parent / "out")
    fields = gguf.GGUFReader(out / "text.gguf").fields
    assert fields["general.name"].contents()
    assert "general.license" not in fields


@pytest.mark.parametrize("head", ["- a", "base_model: [1]", "datasets: [null]"])
def test_what_gguf_says_of_a_card_is_not_printed(
    head: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as without pytest
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
    convert(folder, folder.parent / "out")
    assert capfd.readouterr() == ("", "")


def test_deep_generation_settings(folder: Path) -> None:
    (folder / "generation_config.json").write_text("[" * 100_000)
    convert(folder, folder.parent / "out")  # which reads it for the card alone


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "preprocessor_config.json",
        "chat_template.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "adapters/adapter_config.json",
        "adapters/adapter_model.safetensors",
    ],
)
def test_a_pipe_in_place_of_a_file(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    if name.endswith(".index.json"):  # which a single file of weights goes before
        (folder / "model.safetensors").unlink()
    os.mkfifo(folder / name)
    assert f"{name}: it is no file" in refused(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert f"{name}: it is no file" in refused(folder)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="address space is read in /proc")
@pytest.mark.parametrize("room", [0, 500_000, 2_000_000])
def test_no_memory(room: int, jina: Path, tmp_path: Path) -> None:
    code = (
        "import os, resource, sys\n"
        "import jmm.cli, jmm.convert\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + {room},) * 2)\n"
        "sys.exit(jmm.cli.main(['convert', *sys.argv[1:]]))"
    )
    words = [sys.executable, "-c", code, str(jina), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("jmm: no memory to convert: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- names ---


@pytest.mark.parametrize("given", [None, 5, [], "a\0b", "\ud800", "a" * 300, "loop", "loop/x"])
def test_paths_that_are_none(
    given: Any, jina: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    with pytest.raises((InputError, ModelLoadError)):
        convert(given, "out")
    with pytest.raises(InputError):
        convert(jina, given)
    with pytest.raises(InputError):
        convert(jina, given, overwrite=True)
    with pytest.raises(ModelLoadError):
        bundle.open_bundle(given)
    if given is not None:
        with pytest.raises(JmmError):
            convert(jina, "out", base=given)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.parametrize("name", ["n" * 255, "-x", "line\nbreak", "%s{0}", os.fsdecode(b"\xff")])
def test_any_name_of_a_folder(name: str, jina: Path, tmp_path: Path) -> None:
    source = shutil.copytree(jina, tmp_path / "in" / name)
    out = convert(source, tmp_path / name)
    assert bundle.open_bundle(out).arguments["model"] == str(out / "text.gguf")
    assert gguf.GGUFReader(out / "text.gguf").fields["general.name"].contents()
    convert(source, out, overwrite=True)


def test_a_checkpoint_given_as_this_folder_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoint.write(tiny.MODELS["qwen2_small"], tmp_path / "gme-Qwen2-VL-2B")
    monkeypatch.chdir(source)
    for given in (source, ".", "../gme-Qwen2-VL-2B/.", ".//"):
        out = convert(given, tmp_path / "out", overwrite=given != source)
        assert bundle.open_bundle(out).arguments["profile"] == "gme-qwen2-vl"
        name = gguf.GGUFReader(out / "mmproj.gguf").fields["general.name"].contents()
        assert name == "Gme Qwen2 VL 2B"


def test_pixel_limits_that_cross(jina: Path, tmp_path: Path) -> None:
    for options in ({"min_pixels": 5_000, "max_pixels": 4_000}, {"max_pixels": 100}):
        with pytest.raises(InputError, match=r"min_pixels=\d+ is above max_pixels=\d+"):
            convert(jina, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []
