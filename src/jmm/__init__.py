"""Pictures and text into vectors, in this process, from GGUF models.

Example:
    >>> import numpy as np
    >>> from jmm import Embedder
    >>> with Embedder() as embedder:
    ...     pages = embedder.encode_images(np.zeros((2, 56, 84, 3), np.uint8))
    ...     query = embedder.encode_query("quarterly revenue by region")
    >>> (pages @ query).shape
    (2,)
"""

import logging

from jmm import cpu as cpu  # the first: raises ImportError where nothing native can run
from jmm.embedder import Embedder
from jmm.errors import (
    ContextOverflowError,
    DecodeError,
    ForkedProcessError,
    InputError,
    JmmError,
    MissingExtraError,
    ModelLoadError,
    NonFiniteError,
    OutOfMemoryError,
)
from jmm.pictures import VisionTokens
from jmm.quantizer import quantize_model
from jmm.results import BothVectors
from jmm.runtime import build_info, devices, set_log_level
from jmm.trace import Trace
from jmm.vectors import MultiVector, calibrate, maxsim, pool_tokens, quantize
from jmm.vision import VisionEncoder

__all__ = [
    "BothVectors",
    "ContextOverflowError",
    "DecodeError",
    "Embedder",
    "ForkedProcessError",
    "InputError",
    "JmmError",
    "MissingExtraError",
    "ModelLoadError",
    "MultiVector",
    "NonFiniteError",
    "OutOfMemoryError",
    "Trace",
    "VisionEncoder",
    "VisionTokens",
    "build_info",
    "calibrate",
    "devices",
    "maxsim",
    "pool_tokens",
    "quantize",
    "quantize_model",
    "set_log_level",
]

__version__ = str(build_info()["version"])

# Without a handler, logging prints warnings to stderr by itself.
logging.getLogger("jmm").addHandler(logging.NullHandler())
