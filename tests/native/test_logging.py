"""Native log lines reach the logger ``jmm`` and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Files = tuple[Path, Path]

LOAD_BAD_AND_GOOD = """
import sys
import jmm
bad, text, mmproj = sys.argv[1:]
try:
    jmm.Embedder(bad)
except jmm.ModelLoadError as error:
    print(error)
with jmm.Embedder(text, mmproj, n_threads=1) as embedder:
    embedder.encode_query(["a", ""], on_error="nan")
"""

COUNT_LINES = """
import logging, sys
import jmm
from jmm import Embedder, set_log_level
lines = []
class Handler(logging.Handler):
    def emit(self, record):
        lines.append((record.levelno, record.getMessage()))
logging.getLogger("jmm").addHandler(Handler())
logging.getLogger("jmm").propagate = False
for level in ("CRITICAL", "INFO", "DEBUG"):
    lines.clear()
    set_log_level(level)
    Embedder(sys.argv[1], n_threads=1).close()
    levels = {level for level, _ in lines}
    print(level, len(lines), min(levels, default=99), any("qwen2vl" in line for _, line in lines))
"""


def run(program: str, *words: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


def test_nothing_is_printed_by_default(tiny_files: Callable[..., Files], tmp_path: Path) -> None:
    text, mmproj = tiny_files("qwen25_small")
    bad = tmp_path / "bad.gguf"
    raw = text.read_bytes()
    # the key's name is one letter off, which llama.cpp's own loader would report
    bad.write_bytes(raw.replace(b"tokenizer.ggml.model", b"tokenizer.ggml.modem"))
    done = run(LOAD_BAD_AND_GOOD, bad, text, mmproj)
    assert done.stdout.startswith(f"{bad}: the language model cannot be loaded: ")
    assert "tokenizer.ggml.model" in done.stdout
    assert done.stderr == ""


def test_a_handler_gets_native_lines(tiny_files: Callable[..., Files]) -> None:
    text, _ = tiny_files("qwen25_small")
    done = run(COUNT_LINES, text)
    assert done.stderr == ""
    rows = {row[0]: row[1:] for row in map(str.split, done.stdout.splitlines())}
    assert rows["CRITICAL"] == ["0", "99", "False"]
    assert int(rows["INFO"][0]) > 10
    assert rows["INFO"][1:] == ["20", "True"]
    assert int(rows["DEBUG"][0]) > int(rows["INFO"][0])
    assert rows["DEBUG"][1] == "10"
