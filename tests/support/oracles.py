"""Scoring and pooling of colpali-engine and the codes of sentence-transformers, without the rest.

Both packages import all that they have: models, torchvision, whose wheels fit one build of torch
each, and scikit-learn, which brings a second OpenMP. Here the modules that are needed are
imported alone; they need torch, transformers and scipy.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

NEEDS = (
    "needs: pip install '.[parity]' && "
    "pip install --no-deps colpali-engine==0.3.18 sentence-transformers==6.2.0"
)


def without_init(*packages: str) -> None:
    """Puts packages into ``sys.modules`` whose ``__init__`` has not run."""
    for name in packages:
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ImportError(NEEDS)
        sys.modules[name] = importlib.util.module_from_spec(spec)


without_init("colpali_engine", "sentence_transformers", "sentence_transformers.util")

HierarchicalTokenPooler = importlib.import_module(
    "colpali_engine.compression.token_pooling"
).HierarchicalTokenPooler
score_multi_vector = importlib.import_module(
    "colpali_engine.utils.processing_utils"
).BaseVisualRetrieverProcessor.score_multi_vector
quantize_embeddings = importlib.import_module(
    "sentence_transformers.util.quantization"
).quantize_embeddings
truncate_embeddings = importlib.import_module(
    "sentence_transformers.util.tensor"
).truncate_embeddings
normalize_embeddings = importlib.import_module(
    "sentence_transformers.util.tensor"
).normalize_embeddings
