"""llama.cpp's own converter, from the pinned tree, as an oracle. Needs torch and transformers.

Started in a process of its own: it brings its own version of the package gguf.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf

TREE = Path(__file__).parents[2] / "extern" / "llama.cpp"
NEEDS = "needs the tree in extern/: python tools/llama_source.py patch"
# What ours says beyond the other.
OURS = {
    "jmm.profile",
    "clip.vision.window_size",
    "clip.vision.image_min_pixels",
    "clip.vision.image_max_pixels",
}

# The text converter wants sentencepiece only to find that there is no tokenizer.model, and knows
# a split by what the whole vocabulary makes of a text: not that of a cut one. A checkpoint with
# words.json has the keys of its vocabulary there, and no tokenizer.
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
KINDS = {str: "string", bool: "bool", int: "uint32", float: "float32", list: "array"}
prepare = TextModel.prepare_metadata
def prepare_metadata(self, *args, **kwargs):
    words = self.dir_model / "words.json"
    def set_vocab():
        for key, value in json.loads(words.read_text()).items():
            getattr(self.gguf_writer, f"add_{KINDS[type(value)]}")(key, value)
    if words.exists():
        self.set_vocab = set_vocab
    prepare(self, *args, **kwargs)
TextModel.prepare_metadata = prepare_metadata
for script, arguments in runs:
    sys.argv = [script, *arguments]
    runpy.run_path(f"{tree}/{script}", run_name="__main__")
"""


def is_there() -> bool:
    """Whether the tree is."""
    return (TREE / "convert_hf_to_gguf.py").exists()


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


def check_equal(
    ours: Path,
    theirs: Path,
    *,
    more: Set[str] = frozenset(),
    other: Mapping[str, tuple[str, Any]] = MappingProxyType({}),
) -> None:
    """Fails unless two files have the same tensors, types, bytes and keys.

    Args:
        ours: What `convert` wrote, which may have the keys `OURS` too.
        theirs: What the other converter wrote.
        more: Tensors that ours alone has.
        other: Keys that differ, as ours has them.
    """
    right, found = tensors(theirs), tensors(ours)
    assert found.keys() - more == right.keys(), found.keys() ^ right.keys()
    for name, (kind, shape, data) in right.items():
        assert found[name][:2] == (kind, shape), (name, found[name][:2], kind, shape)
        assert found[name][2] == data, name
    expected = {**keys(theirs), **other}
    assert all(keys(theirs)[key] != value for key, value in other.items()), other
    keys_found = {key: value for key, value in keys(ours).items() if key not in OURS}
    wrong = {key for key in keys_found | expected if keys_found.get(key) != expected.get(key)}
    assert not wrong, wrong
