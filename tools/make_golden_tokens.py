"""Writes tests/golden/tokens.npz: the reference tokenizer's ids of tests/token_texts.py.

Needs torch, transformers, tokenizers. Run after a change of the texts:

    python tools/make_golden_tokens.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import token_texts
from support import golden, reference, tiny

MODEL = "qwen25_small"


def main() -> None:
    """Entry point."""
    model = tiny.MODELS[MODEL]
    encoder = reference.tokenizer(model, False)
    ids = model.vocab.ids
    rows = [
        [ids[token] for token in encoder.encode(text, add_special_tokens=False).tokens]
        for text in token_texts.texts()
    ]
    np.savez_compressed(
        golden.FOLDER / "tokens.npz",
        ids=np.concatenate([np.array(row, np.int32) for row in rows]),
        counts=np.array([len(row) for row in rows], np.int32),
    )
    print(f"{len(rows)} texts, {sum(map(len, rows))} tokens")


if __name__ == "__main__":
    main()
