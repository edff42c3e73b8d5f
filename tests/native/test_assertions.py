"""A failed assertion of ggml on the calling thread: an exception, and the process lives on."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from subprocess_case import run
from support import gguf_writer, golden, tiny

NAME = "qwen25_small"
TEXT_KEY = b"qwen2vl.attention.layer_norm_rms_epsilon"
VISION_KEY = b"clip.vision.attention.layer_norm_epsilon"


def spoil(path: Path, key: bytes) -> None:
    """Sets an epsilon to -1, which checkpoint.py would refuse and ggml asserts on."""
    file = bytearray(path.read_bytes())
    value = file.index(key) + len(key) + 4
    file[value : value + 4] = struct.pack("<f", -1.0)
    path.write_bytes(file)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("part", ["text", "vision"])
def test_the_model_is_given_up_and_the_process_goes_on(
    part: str, n_threads: int, tmp_path: Path
) -> None:
    model, weights = tiny.MODELS[NAME], golden.weights(NAME)
    text = gguf_writer.write_text(model, weights, tmp_path / "text.gguf")
    vision = gguf_writer.write_mmproj(model, weights, tmp_path / "mmproj.gguf")
    if part == "text":
        spoil(text, TEXT_KEY)
    else:
        spoil(vision, VISION_KEY)
    lines = run(
        """
Embedder(n_threads=1).close()  # leaves the guard of this thread as it was
engine = _core.Engine(words[0], words[1], n_threads=int(words[3]))
text = ("a", False) if words[2] == "text" else (PATCHES[:16], 4, 4)
sequence = engine.tokenize([text])
pooled = np.empty((1, engine.n_embd), np.float32)
for _ in range(2):
    try:
        engine.forward([sequence], [(0, 1)], pooled)
    except JmmError as error:
        print(type(error).__name__, "GGML_ASSERT" in str(error), engine.is_open)
engine.close()
with Embedder() as embedder:
    print(np.isfinite(embedder.encode_query("the next model works")).all())
""",
        text,
        vision,
        part,
        n_threads,
    )
    assert lines == ["DecodeError True False", "InputError False False", "True"]
