"""GGUF files with weights of another type: smaller towers and language models."""

from jmm.quantizer.model import QuantizedFile, file_types, quantize_model

__all__ = ["QuantizedFile", "file_types", "quantize_model"]
