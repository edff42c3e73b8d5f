"""jmm inside other software: one file each, which needs the package of that software alone.

`BatchEmbedder` and `BatchVisionEncoder` are for engines that map batches of a table (Ray Data,
Daft, Spark, datasets), `VisionService` for many callers of one vision tower. The adapters are
`jmm.integrations.langchain`, `.llama_index`, `.haystack`, `.sentence_transformers` and `.mteb`.
"""

from jmm.integrations.batch import BatchEmbedder, BatchVisionEncoder
from jmm.integrations.service import VisionService

__all__ = ["BatchEmbedder", "BatchVisionEncoder", "VisionService"]
