"""Every code point between two letters, live against each kind's reference tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmm import Embedder
from support import family, family_golden, gguf_writer, golden, tiny

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# llama.cpp's BERT drops marks that the reference keeps, and knows newer characters: see
# docs/reliability.md.
KINDS = {"bert": 1100, "embeddinggemma": 0, "embeddinggemma2": 0, "qwen25_small": 0}
SURROGATES = range(0xD800, 0xE000)


def code_points() -> Iterator[int]:
    """The first three planes and the tags, and a 37th of the rest."""
    for code in range(0x110000):
        first = code < 0x30000 or 0xE0000 <= code < 0xE0200
        if code not in SURROGATES and (first or code % 37 == 0):
            yield code


@pytest.mark.parametrize("name", KINDS)
def test_every_code_point(name: str, tmp_path: Path) -> None:
    if name in family.FAMILIES:
        model = family.FAMILIES[name]
        path = family.write(model, family_golden.load(name).weights, tmp_path / "text.gguf")
        words = model.words()
        tokenizer, named = words.make_tokenizer(False), words.named
    else:
        reference = pytest.importorskip("support.reference")
        small = tiny.MODELS[name]
        path = gguf_writer.write_text(small, golden.weights(name), tmp_path / "text.gguf")
        tokenizer, named = reference.tokenizer(small, False), small.vocab.ids
    profile = "text" if name.startswith("embeddinggemma") else None
    differing: list[str] = []
    with Embedder(path, n_threads=1, profile=profile) as embedder:
        kind = embedder._kinds.document("retrieval")
        codes = list(code_points())
        for start in range(0, len(codes), 4096):
            texts = [f"a{chr(code)}b" for code in codes[start : start + 4096]]
            for text, encoding in zip(texts, tokenizer.encode_batch(texts), strict=True):
                pairs = zip(encoding.tokens, encoding.ids, strict=True)
                wanted = [named.get(token, i) for token, i in pairs]
                if kind.place(text).sequence.token_ids() != wanted:
                    differing.append(text[1])
    categories = sorted({unicodedata.category(character) for character in differing})
    assert len(differing) <= KINDS[name], (categories, ascii(differing[:20]))
