"""A failed assertion of ggml on the calling thread: an exception, and the process lives on."""

from __future__ import annotations

import struct
from pathlib import Path

from subprocess_case import run
from support import gguf_writer, golden, tiny

NAME = "qwen25_small"
KEY = b"qwen2vl.attention.layer_norm_rms_epsilon"


def test_the_model_is_given_up_and_the_process_goes_on(tmp_path: Path) -> None:
    model = gguf_writer.write_text(tiny.MODELS[NAME], golden.weights(NAME), tmp_path / "text.gguf")
    # checkpoint.check_text would refuse it: ggml asserts that the epsilon is not below 0
    file = bytearray(model.read_bytes())
    value = file.index(KEY) + len(KEY) + 4
    file[value : value + 4] = struct.pack("<f", -1.0)
    model.write_bytes(file)
    lines = run(
        """
engine = _core.Engine(words[0], n_threads=1)
sequence = engine.tokenize([("a", False)])
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
        model,
    )
    assert lines == ["DecodeError True False", "InputError False False", "True"]
