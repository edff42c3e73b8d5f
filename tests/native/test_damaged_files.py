"""Damaged GGUF files raise ModelLoadError or load; none ends the process.

The files are tried in a process of their own, which is started again after the file that
ended it. A damaged file that loads is also run: some damage shows only there.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

Damage = tuple[int, str]  # where, and the bytes there in hex; none cuts the file off
Field = gguf.ReaderField

TRY_FILES = """
import json, sys
from pathlib import Path
import numpy as np
from jmm import DecodeError, Embedder, InputError, ModelLoadError

task = json.load(sys.stdin)
good = Path(task["paths"][task["kind"]]).read_bytes()
paths = task["paths"] | {task["kind"]: task["target"]}
for number, (start, new) in task["cases"]:
    damaged = bytearray(good)
    if new:
        damaged[start : start + len(new) // 2] = bytes.fromhex(new)
    else:
        del damaged[start:]
    Path(task["target"]).write_bytes(damaged)
    print(number, end=" ", flush=True)
    try:
        with Embedder(paths["text"], paths["mmproj"], n_threads=1) as embedder:
            embedder.encode_query(["hello", "world and more"])
            embedder.encode_images(np.zeros((56, 84, 3), np.uint8))
    except ModelLoadError as error:
        print("refused", flush=True)
    except (InputError, DecodeError) as error:  # loaded; the context or a number is too small
        print("ran", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    else:
        print("ran", flush=True)
"""


def outcomes(paths: tuple[Path, Path], kind: str, target: Path, cases: list[Damage]) -> list[str]:
    """What each damage led to: "refused", "ran", or what went wrong."""
    found: dict[int, str] = {}
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    while len(found) < len(cases):
        task = {
            "paths": dict(zip(("text", "mmproj"), map(str, paths), strict=True)),
            "kind": kind,
            "target": str(target),
            "cases": [(number, case) for number, case in enumerate(cases) if number not in found],
        }
        done = subprocess.run(
            [sys.executable, "-c", TRY_FILES],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            check=False,
        )
        for line in done.stdout.splitlines():
            number, _, outcome = line.partition(" ")
            found[int(number)] = outcome or f"ended by {done.returncode}: {done.stderr[-200:]}"
        if done.returncode == 0:
            break
    return [found[number] for number in range(len(cases))]


def check(
    paths: tuple[Path, Path], kind: str, target: Path, cases: list[Damage], refused: int
) -> None:
    """Every case ends well, and at least ``refused`` of them in a ModelLoadError."""
    got = outcomes(paths, kind, target, cases)
    bad = {
        str(case): outcome
        for case, outcome in zip(cases, got, strict=True)
        if outcome not in ("refused", "ran")
    }
    assert not bad, json.dumps(bad, indent=1)
    assert got.count("refused") >= refused


def header_fields(path: Path) -> tuple[bytes, int, list[Field]]:
    reader = gguf.GGUFReader(path)
    return path.read_bytes(), reader.data_offset, list(reader.fields.values())


def value_offset(field: Field) -> int:
    """Where the value of a scalar lies: after the key's length, the key and the type."""
    return field.offset + sum(part.nbytes for part in field.parts[:3])


@pytest.fixture(params=["qwen25_small", "qwen2_small"])
def paths(
    request: pytest.FixtureRequest, tiny_files: Callable[..., tuple[Path, Path]]
) -> tuple[Path, Path]:
    return tiny_files(request.param)


@pytest.mark.parametrize("kind", ["text", "mmproj"])
def test_cut_short(paths: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    raw, data, _ = header_fields(paths[kind == "mmproj"])
    stops = [0, 3, 4, 8, 20, 24, data // 3, data - 1, data, data + 1, len(raw) // 2, len(raw) - 1]
    check(paths, kind, tmp_path / "cut.gguf", [(stop, "") for stop in stops], len(stops))


@pytest.mark.parametrize("kind", ["text", "mmproj"])
def test_flipped_bits(paths: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    raw, data, fields = header_fields(paths[kind == "mmproj"])
    keys = next((f.offset for f in fields if f.name == "tokenizer.ggml.tokens"), data)
    draw = random.Random(f"{kind} {paths[0].name}")
    cases = []
    for number in range(60):
        at = draw.randrange(keys if number % 2 else data)
        cases.append((at, f"{raw[at] ^ 1 << draw.randrange(8):02x}"))
    check(paths, kind, tmp_path / "flipped.gguf", cases, 20)


@pytest.mark.parametrize("kind", ["text", "mmproj"])
def test_numbers_of_the_header(paths: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    _, _, fields = header_fields(paths[kind == "mmproj"])
    values = {
        gguf.GGUFValueType.UINT32: [struct.pack("<I", n) for n in (0, 1, 3, 513, 2**31, 2**32 - 1)],
        gguf.GGUFValueType.FLOAT32: [struct.pack("<f", x) for x in (0, -1, float("nan"))],
    }
    family = ("qwen2vl.", "clip.vision.")
    cases = [
        (value_offset(field), value.hex())
        for field in fields
        if field.name.startswith(family)
        for value in values.get(field.types[0], [])
    ]
    assert len(cases) > 30
    check(paths, kind, tmp_path / "number.gguf", cases, len(cases) // 2)


@pytest.mark.parametrize("kind", ["text", "mmproj"])
def test_types_of_keys(paths: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    """Each scalar under another type of its size: i32 for u32, u8 for bool and so on."""
    _, _, fields = header_fields(paths[kind == "mmproj"])
    t = gguf.GGUFValueType
    others = {t.UINT32: (t.INT32, t.FLOAT32), t.FLOAT32: (t.UINT32,), t.BOOL: (t.UINT8, t.INT8)}
    cases = [
        (value_offset(field) - 4, struct.pack("<I", other).hex())
        for field in fields
        if not field.name.startswith("GGUF.")
        for other in others.get(field.types[0], ())
    ]
    assert len(cases) > 10
    check(paths, kind, tmp_path / "type.gguf", cases, len(cases) // 2)


@pytest.mark.parametrize("kind", ["text", "mmproj"])
def test_types_of_weights(paths: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    reader = gguf.GGUFReader(paths[kind == "mmproj"])
    cases = []
    for tensor in reader.tensors:
        if tensor.name.startswith(("blk.1.", "v.blk.1.", "token_embd", "mm.")):
            field = tensor.field
            at = field.offset + sum(part.nbytes for part in field.parts[:-2])
            cases.append((at, struct.pack("<I", gguf.GGMLQuantizationType.I32).hex()))
    assert len(cases) > 10
    check(paths, kind, tmp_path / "type.gguf", cases, len(cases))


def test_a_vocabulary_with_a_token_twice(paths: tuple[Path, Path], tmp_path: Path) -> None:
    _, _, fields = header_fields(paths[0])
    tokens = next(field for field in fields if field.name == "tokenizer.ggml.tokens")
    first, second = tokens.data[:2]
    assert len(tokens.parts[first]) == len(tokens.parts[second]) == 1
    at = tokens.offset + sum(part.nbytes for part in tokens.parts[:second])
    cases = [(at, bytes(tokens.parts[first]).hex())]
    check(paths, "text", tmp_path / "twice.gguf", cases, 1)
