"""Pictures and text into vectors, in this process, from GGUF models.

    from jmm import Embedder

    with Embedder("model.gguf", "mmproj.gguf") as embedder:
        pages = embedder.encode_images(["page-1.png", "page-2.png"])
        query = embedder.encode_query("quarterly revenue by region")
    print(pages @ query)
"""

import logging

from jmm.embedder import Embedder
from jmm.errors import (
    ContextOverflowError,
    DecodeError,
    ForkedProcessError,
    InputError,
    JmmError,
    ModelLoadError,
    NonFiniteError,
    OutOfMemoryError,
)
from jmm.runtime import build_info, devices, set_log_level

__all__ = [
    "ContextOverflowError",
    "DecodeError",
    "Embedder",
    "ForkedProcessError",
    "InputError",
    "JmmError",
    "ModelLoadError",
    "NonFiniteError",
    "OutOfMemoryError",
    "build_info",
    "devices",
    "set_log_level",
]

# Without a handler, logging prints warnings to stderr by itself.
logging.getLogger("jmm").addHandler(logging.NullHandler())
