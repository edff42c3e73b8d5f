"""Writes tests/golden/tokens.npz: the reference tokenizers' ids of tests/token_texts.py.

One vocabulary of each kind: the Qwen2 family's, and those of `support.words`.

Needs torch, transformers, tokenizers. Run after a change of the texts:

    python tools/make_golden_tokens.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import token_texts
from support import golden, reference, tiny, words

MODEL = "qwen25_small"


def main() -> None:
    """Entry point."""
    model = tiny.MODELS[MODEL]
    encoder = reference.tokenizer(model, False)
    ids = model.vocab.ids

    def qwen(text: str) -> list[int]:
        tokens = encoder.encode(text, add_special_tokens=False).tokens
        return [ids[token] for token in tokens]

    texts = token_texts.texts()
    arrays = _flat("", map(qwen, texts)) | _flat("odd_", map(qwen, token_texts.odd()))
    for kind in (words.wordpiece, words.sentencepiece, words.gemma4):
        rows = map(kind().encode, [*texts, *token_texts.odd()])
        arrays |= _flat(f"{kind.__name__}_", rows)
    np.savez_compressed(golden.FOLDER / "tokens.npz", **arrays)
    print({name: len(values) for name, values in arrays.items()})


def _flat(prefix: str, rows: Iterable[list[int]]) -> dict[str, NDArray[np.int32]]:
    arrays = [np.array(row, np.int32) for row in rows]
    counts = np.array([len(row) for row in arrays], np.int32)
    return {f"{prefix}ids": np.concatenate(arrays), f"{prefix}counts": counts}


if __name__ == "__main__":
    main()
