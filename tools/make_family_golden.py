"""Writes tests/golden/qwen_families.npz from transformers. Needs torch and tokenizers.

Run after a change of tests/support/families.py, family_calls.py or qwen3.py:

    python tools/make_family_golden.py
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import families, family_calls, golden, qwen3, tiny


def main() -> None:
    """Entry point."""
    meta = {
        "qwen2": tiny.sha256(golden.weights(family_calls.MODEL.name)),
        "qwen25": tiny.sha256(golden.weights(family_calls.COLQWEN25_MODEL.name)),
        "qwen3": tiny.sha256(qwen3.golden_weights()),
        "versions": {
            package: importlib.metadata.version(package)
            for package in ("transformers", "torch", "tokenizers", "numpy")
        },
    }
    arrays = families.results()
    target = family_calls.GOLDEN
    np.savez_compressed(target, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{target.name}: {len(arrays)} arrays, {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
