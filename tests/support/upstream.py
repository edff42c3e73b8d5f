"""llama.cpp's own converter, from the pinned tree, as an oracle. Needs torch and transformers.

Started in a process of its own: it brings its own version of the package gguf.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf

TREE = Path(__file__).parents[2] / "extern" / "llama.cpp"

# The text converter wants sentencepiece only to find that there is no tokenizer.model, and knows
# a split by what the whole vocabulary makes of a text: not that of a cut one.
_RUN = """
import json, runpy, sys, types
import transformers
sys.modules["sentencepiece"] = types.SimpleNamespace(SentencePieceProcessor=None)
tree, runs = sys.argv[1], json.loads(sys.argv[2])
sys.path[:0] = [tree, f"{tree}/gguf-py"]
from conversion.base import TextModel
recognised = TextModel.get_vocab_base_pre
def get_vocab_base_pre(self, tokenizer):
    return recognised(self, tokenizer) if len(tokenizer) > 100_000 else "qwen2"
TextModel.get_vocab_base_pre = get_vocab_base_pre
for script, arguments in runs:
    sys.argv = [script, *arguments]
    runpy.run_path(f"{tree}/{script}", run_name="__main__")
"""


def run(*runs: tuple[str, list[str | Path]]) -> None:
    """Runs scripts of the tree, in order, in one process: ``(script, arguments)`` each.

    Raises:
        RuntimeError: One of them failed.
    """
    listed = [(script, [str(argument) for argument in arguments]) for script, arguments in runs]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(TREE), json.dumps(listed)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def keys(path: Path) -> dict[str, tuple[str, Any]]:
    """``{key: (type, value)}`` of a GGUF file."""
    fields = gguf.GGUFReader(path).fields.items()
    return {
        name: ("/".join(kind.name for kind in field.types), field.contents())
        for name, field in fields
        if not name.startswith("GGUF.")
    }


def tensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """``{name: (type, ne, data)}`` of a GGUF file."""
    return {
        tensor.name: (tensor.tensor_type.name, tensor.shape.tolist(), tensor.data.tobytes())
        for tensor in gguf.GGUFReader(path).tensors
    }
