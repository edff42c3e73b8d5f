"""ColQwen2.5 against colpali-engine's own model and processor, live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import Embedder
from jmm.convert import convert
from support import checkpoint, family_calls, gguf_writer, golden, tiny
from support.family_calls import COLQWEN25, COLQWEN25_MODEL, TEXT

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("support.oracles", reason="see support/oracles.py", exc_type=ImportError)
colqwen25 = pytest.importorskip("support.colqwen25")

COMPONENT = 5e-6
MODEL = replace(COLQWEN25_MODEL, seed=200)
# Height and width in pixels; the processor resizes all but the first.
SIZES = ((112, 140), (70, 100), (331, 257), (40, 900), (900, 700))
TEXTS = (TEXT, "one", "Wie viel kostet das? 12,50 €")


def largest_difference(found: Any, right: list[np.ndarray]) -> float:
    assert [rows.shape for rows in found] == [rows.shape for rows in right]
    pairs = zip(found, right, strict=True)
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def check(embedder: Embedder, right: Any) -> None:
    """Texts in one batch on both sides; pictures of several sizes one by one."""
    options = {"multi_vector": True}
    texts = list(TEXTS)
    assert (
        largest_difference(embedder.encode_query(texts, **options), right.queries(texts))
        <= COMPONENT
    )
    assert (
        largest_difference(embedder.encode_document(texts, **options), right.documents(texts))
        <= COMPONENT
    )
    for size in SIZES:
        picture = tiny.pixels(*size, seed=MODEL.seed)
        found = embedder.encode_images([picture], **options)
        assert largest_difference(found, right.pictures([picture])) <= COMPONENT


def test_golden_file() -> None:
    """What it holds of ColQwen2.5 is what colpali-engine computes."""
    right = colqwen25.ColQwen25(
        COLQWEN25_MODEL,
        golden.weights(COLQWEN25_MODEL.name),
        family_calls.colqwen_projector(COLQWEN25),
    )
    processor = right.processor
    picture = Image.fromarray(family_calls.picture(COLQWEN25))
    with np.load(family_calls.GOLDEN) as file:
        for call, inputs in (
            ("query", processor.process_queries([TEXT])),
            ("document", processor.process_texts([TEXT])),
            ("picture", processor.process_images([picture])),
        ):
            np.testing.assert_array_equal(
                inputs["input_ids"][0].numpy(), file[f"{COLQWEN25}/{call}/ids"]
            )
            (rows,) = right.rows(inputs)
            assert np.abs(rows - file[f"{COLQWEN25}/{call}/tokens"]).max() <= 2e-6


def test_fresh_weights(tmp_path: Path) -> None:
    weights = tiny.weights(MODEL)
    right = colqwen25.ColQwen25(MODEL, weights, family_calls.colqwen_projector(COLQWEN25))
    text = gguf_writer.write_text(MODEL, weights, tmp_path / "text.gguf")
    mmproj = gguf_writer.write_mmproj(MODEL, weights, tmp_path / "mmproj.gguf")
    projector = family_calls.write_projector(tmp_path / "projector.gguf", COLQWEN25)
    with Embedder(text, mmproj, profile=COLQWEN25, projector=projector, n_threads=1) as embedder:
        check(embedder, right)


def test_a_folder_that_colpali_engine_wrote(tmp_path: Path) -> None:
    """Names and config as its ``save_pretrained`` writes them, with its 128 components."""
    right = colqwen25.ColQwen25(MODEL, tiny.weights(MODEL))
    folder = tmp_path / "model"
    right.net.save_pretrained(folder)
    right.processor.image_processor.save_pretrained(folder)
    checkpoint.write_json(folder / "tokenizer.json", checkpoint.tokenizer(MODEL))
    checkpoint.write_json(folder / "tokenizer_config.json", checkpoint.TOKENIZER_CONFIG)
    with Embedder(convert(folder, tmp_path / "out"), n_threads=1) as embedder:
        assert embedder.profile.name == COLQWEN25
        assert embedder.multi_vector_dim == 128
        check(embedder, right)
    check_adapter(right, folder, tmp_path)


def check_adapter(right: Any, base: Path, tmp_path: Path) -> None:
    """An adapter beside that folder, which the reference adds to its own weights."""
    generator = torch.Generator().manual_seed(MODEL.seed)
    pairs = {}
    for name, module in right.net.named_modules():
        if name.endswith("_proj") and not name.startswith("visual."):
            n_out, n_in = module.weight.shape
            low = torch.randn(4, n_in, generator=generator) * n_in**-0.5
            high = torch.randn(n_out, 4, generator=generator) * 0.2
            pairs[name] = low.numpy(), high.numpy()
            module.weight.data += checkpoint.ALPHA / 4 * high @ low
    assert len(pairs) == len(checkpoint.MODULES) * MODEL.layers + 1
    adapter = checkpoint.write_adapter_alone(tmp_path / "adapter", pairs)
    out = convert(adapter, tmp_path / "merged", base=base)
    with Embedder(out, n_threads=1) as embedder:
        check(embedder, right)
