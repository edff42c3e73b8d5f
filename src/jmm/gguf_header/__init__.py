"""What a GGUF file's header promises, checked before C code relies on it.

llama.cpp asserts, and so ends the process, on some headers that a damaged or mismatched file
can carry: a key of another type, a tensor of another shape, data cut off at the end.
Everything it would assert on for the models that jmm serves is refused here by name.
"""

from jmm.gguf_header.adapter import PROJECTOR_WEIGHT, check_adapter
from jmm.gguf_header.file import Header, check_readable, is_moderate, projector_type
from jmm.gguf_header.qwen_tower import MERGE_SIZE
from jmm.gguf_header.text import MAX_LAYERS, check_text
from jmm.gguf_header.tile_tower import gemma4_sizes, tile_tokens
from jmm.gguf_header.tower import check_mmproj

__all__ = [
    "MAX_LAYERS",
    "MERGE_SIZE",
    "PROJECTOR_WEIGHT",
    "Header",
    "check_adapter",
    "check_mmproj",
    "check_readable",
    "check_text",
    "gemma4_sizes",
    "is_moderate",
    "projector_type",
    "tile_tokens",
]
