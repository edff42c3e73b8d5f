"""Writes tests/golden/jina_v4.npz from transformers. Needs torch, transformers, tokenizers.

Run after a change of tests/support/tiny.py, checkpoint.py or jina_calls.py:

    python tools/make_jina_golden.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import checkpoint, jina_calls, tiny
from support.contract import Contract


def main() -> None:
    arrays = {}
    for task in checkpoint.TASKS:
        right = Contract(tiny.MODELS[jina_calls.MODEL], task).results()
        for (call, multi_vector), values in right.items():
            arrays[f"{task}/{call}/{'tokens' if multi_vector else 'vector'}"] = values
    np.savez_compressed(jina_calls.GOLDEN, **arrays)


if __name__ == "__main__":
    main()
