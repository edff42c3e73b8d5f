"""Native log lines reach the logger ``jmm.native`` and nothing else."""

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
        lines.append(record)
logging.getLogger("jmm").addHandler(Handler())
for level in ("CRITICAL", "WARNING", "DEBUG"):
    lines.clear()
    set_log_level(level)
    Embedder(sys.argv[1], n_threads=1).close()
    names = {record.name for record in lines}
    about = sum("qwen2vl.block_count" in record.getMessage() for record in lines)
    print(level, len(lines), *names, about)
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
    critical, warning, debug = map(str.split, done.stdout.splitlines())
    assert critical == ["CRITICAL", "0", "0"]
    assert warning == ["WARNING", "0", "0"]
    assert int(debug[1]) > 10
    assert debug[2] == "jmm.native"
    assert int(debug[3]) > 0


NO_MEMORY_FOR_A_LINE = """
import logging, sys
import jmm
class Handler(logging.Handler):
    def emit(self, record):
        raise MemoryError
logger = logging.getLogger("jmm.native")
for handler in (Handler(), logging.NullHandler()):
    logger.handlers = [handler]
    logger.propagate = False
    try:
        jmm.Embedder(sys.argv[1])
    except jmm.JmmError as error:
        print(type(error).__name__)
"""


def test_a_line_that_is_lost_for_want_of_memory(
    tiny_files: Callable[..., Files], tmp_path: Path
) -> None:
    """It may have been the one that told of it, so the failure counts as one of memory."""
    bad = tmp_path / "bad.gguf"
    raw = tiny_files("qwen25_small")[0].read_bytes()
    bad.write_bytes(raw.replace(b"tokenizer.ggml.model", b"tokenizer.ggml.modem"))
    done = run(NO_MEMORY_FOR_A_LINE, bad)
    assert (done.stdout, done.stderr) == ("OutOfMemoryError\nModelLoadError\n", "")
