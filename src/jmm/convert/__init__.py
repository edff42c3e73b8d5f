"""Hugging Face checkpoints to the files that an `Embedder` loads. Needs ``gguf``.

A checkpoint flows one way: `config` and `tensors` (what the folder holds) -> `layout` (which
tensor of it becomes which tensor of ours) -> `gguf_file` (a bounded piece at a time) -> `output`
(a folder that appears whole or not at all). `conversion` conducts.
"""

from jmm.extras import missing

try:
    from jmm.convert.conversion import TYPES, convert
except ModuleNotFoundError as error:
    if error.name != "gguf":
        raise
    raise missing("gguf", "conversion") from None

__all__ = ["TYPES", "convert"]
