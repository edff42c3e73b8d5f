"""GGUF files that someone has tampered with are refused or run; none harms the process.

The files are tried in processes of their own, many in each, with limits on address space and on
processor time. What ends its process, or says something on stderr, is found by its number:
``hostile.damaged(source, f"{kind} {number}")`` makes that file again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from jmm.convert import convert
from support import (
    checkpoint,
    family,
    family_golden,
    gguf_writer,
    golden,
    hostile,
    jina_calls,
    qwen3,
    sanitizer,
    tiny,
    vision_family,
)
from support.family import FAMILIES
from support.vision_family import VISION_FAMILIES

TESTS = Path(__file__).resolve().parents[1]
QWEN = ("text", "mmproj", "adapter", "old-text", "old-mmproj", "qwen3-text", "qwen3-mmproj")
TILES = tuple(f"{name}-{part}" for name in sorted(VISION_FAMILIES) for part in ("text", "mmproj"))
TEXTS = tuple(sorted(FAMILIES))
KINDS = (*QWEN, *TILES, *TEXTS)
WORKERS = os.cpu_count() or 1
PER_PROCESS = 250
# A hang, however busy the machine; no test waits for it otherwise.
TIMEOUT_S = 600 * sanitizer.SLOWER
# What a file may take: of address space, or with a sanitizer at once and of memory in all.
MEMORY_MB = 1024
LIMITS = {
    "max_allocation_size_mb": MEMORY_MB,
    "hard_rss_limit_mb": 2 * MEMORY_MB,
    "quarantine_size_mb": 64,
}

TRY_FILES = """
import json, os, resource, signal, sys
from pathlib import Path
task = json.load(sys.stdin)
sys.path.insert(0, task["tests"])
import numpy as np
from jmm import Embedder, JmmError, ModelLoadError, OutOfMemoryError
from support import hostile

def vectors(files, n=1):
    adapters = {"code": files["adapter"]} if "adapter" in files else None
    mmproj = files.get("mmproj")
    with Embedder(files["text"], mmproj, adapters=adapters, n_threads=n) as embedder:
        yield embedder.encode_query(["hello", "world and more"])
        if mmproj is not None:
            yield embedder.encode_images(np.zeros((56, 84, 3), np.uint8))
        if embedder.multi_vector_dim:
            yield embedder.encode_query("a", multi_vector=True)

def outcome(files, n):
    try:
        rows = list(vectors(files, n))
    except OutOfMemoryError as error:
        return f"huge: {error}"
    except ModelLoadError:
        return "refused"
    except JmmError as error:
        return f"failed: {type(error).__name__}"
    except BaseException as error:
        return f"untyped: {type(error).__name__}: {error}"
    return "ran" if all(np.isfinite(row).all() for row in rows) else "not finite"

files, part = task["files"], task["part"]
source, target = Path(files[part]).read_bytes(), Path(task["target"])
before = list(vectors(files))
used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
if task["memory"]:
    resource.setrlimit(resource.RLIMIT_AS, (used + task["memory"],) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
said = 0
for number in task["numbers"]:
    target.write_bytes(hostile.damaged(source, f"{task['kind']} {number}")[1])
    print(number, end=" ", flush=True)
    signal.setitimer(signal.ITIMER_PROF, task["seconds"])  # its signal ends the process
    result = outcome(files | {part: str(target)}, 1 + number % 2)
    signal.setitimer(signal.ITIMER_PROF, 0)
    if os.fstat(2).st_size > said:
        result = f"stderr after: {result}"
        said = os.fstat(2).st_size
    print(json.dumps(result), flush=True)
after = list(vectors(files))
same = all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))
print("end", json.dumps("same" if same else "the good files give other vectors"), flush=True)
"""


@dataclass(frozen=True)
class Case:
    """The good files, and which of them is damaged."""

    kind: str
    part: str
    files: dict[str, str]

    def run(self, folder: Path, numbers: list[int]) -> dict[int, str]:
        """What each damage led to."""
        found: dict[int, str] = {}
        folder.mkdir()
        while left := [number for number in numbers if number not in found]:
            task = {
                "tests": str(TESTS),
                "kind": self.kind,
                "part": self.part,
                "files": self.files,
                "target": str(folder / "damaged.gguf"),
                "numbers": left,
                "memory": 0 if sanitizer.ANY else MEMORY_MB * 2**20,
                "seconds": 20 * sanitizer.SLOWER,
            }
            with (folder / "stderr").open("w+") as stderr:
                done = subprocess.run(
                    [sys.executable, "-c", TRY_FILES],
                    input=json.dumps(task),
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    env=sanitizer.environment(**LIMITS) | {"GGML_NO_BACKTRACE": "1"},
                    timeout=TIMEOUT_S,
                    check=False,
                )
                stderr.seek(0)
                said = sanitizer.summary(stderr.read())
            lines = [line.partition(" ") for line in done.stdout.splitlines()]
            for word, _, result in lines:
                if word == "end":
                    assert json.loads(result) == "same"
                    continue
                found[int(word)] = (
                    json.loads(result) if result else f"ended by {done.returncode}: {said}"
                )
            assert lines, said
            assert done.returncode or not left or lines[-1][0] == "end"
        return found


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("hostile")
    return {case.kind: case for case in make_cases(folder)}


def make_cases(folder: Path) -> list[Case]:
    model = tiny.MODELS[jina_calls.MODEL]
    out = convert(checkpoint.write(model, folder / "jina", checkpoint.JINA), folder / "out")
    new = {"text": "text.gguf", "mmproj": "mmproj.gguf", "adapter": "adapter-code.gguf"}
    files = {part: str(out / name) for part, name in new.items()}
    model, weights = tiny.MODELS["qwen2_small"], golden.weights("qwen2_small")
    old = {
        "text": str(gguf_writer.write_text(model, weights, folder / "text.gguf", "Q8_0")),
        "mmproj": str(gguf_writer.write_mmproj(model, weights, folder / "mmproj.gguf", "F16")),
    }
    made = [Case(kind, kind, files) for kind in new]
    made += [Case(f"old-{part}", part, old) for part in old]
    values = qwen3.golden_weights()
    third = {
        "text": str(qwen3.write_text(values, folder / "qwen3-text.gguf", add_eos=True)),
        "mmproj": str(qwen3.write_mmproj(values, folder / "qwen3-mmproj.gguf")),
    }
    made += [Case(f"qwen3-{part}", part, third) for part in third]
    for name, seeing in VISION_FAMILIES.items():
        pair = vision_family.write(seeing, family_golden.load(name).weights, folder / name)
        tiles = dict(zip(("text", "mmproj"), map(str, pair), strict=True))
        made += [Case(f"{name}-{part}", part, tiles) for part in tiles]
    for name, reading in FAMILIES.items():
        path = folder / f"{name}.gguf"
        family.write(reading, family_golden.load(name).weights, path)
        made.append(Case(name, "text", {"text": str(path)}))
    return made


def check(case: Case, folder: Path, n: int) -> None:
    parts = [list(range(start, min(start + PER_PROCESS, n))) for start in range(0, n, PER_PROCESS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        folders = [folder / str(i) for i in range(len(parts))]
        found = [item for part in pool.map(case.run, folders, parts) for item in part.items()]
    bad = {
        f"{case.kind} {number}": (result, hostile.damaged(source(case), f"{case.kind} {number}")[0])
        for number, result in found
        if result not in ("refused", "ran") and not result.startswith("failed: ")
    }
    assert not bad, json.dumps(bad, indent=1)
    kinds = Counter(result for _, result in found)
    assert kinds["refused"] > n // 8, "damage that is not noticed proves nothing"
    assert kinds["ran"] > n // 16, "damage that ends every file early proves nothing"


def source(case: Case) -> bytes:
    return Path(case.files[case.part]).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_sixty_each(kind: str, cases: dict[str, Case], tmp_path: Path) -> None:
    check(cases[kind], tmp_path, 60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_each(kind: str, cases: dict[str, Case], tmp_path: Path) -> None:
    """`JMM_TEST_MUTATIONS=1000` for 22,000 in all."""
    check(cases[kind], tmp_path, int(os.environ.get("JMM_TEST_MUTATIONS", "250")))


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_are_the_file(kind: str, cases: dict[str, Case]) -> None:
    assert hostile.parse(source(cases[kind])).bytes() == source(cases[kind])
