"""Writes tests/golden/families/*.npz from transformers. Needs torch and transformers.

Run after a change of tests/support/family.py:

    python tools/make_further_golden.py [FAMILY ...]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import family, family_golden, family_reference, sequences, tiny, vision_reference
from support.vision_family import MEAN, STD, VISION_FAMILIES, VisionFamily

FAMILIES = {**family.FAMILIES, **VISION_FAMILIES}
TEXTS = {
    "one_token": "a",
    "sentence": "a picture of the red square in the middle",
    "unknown": "café, Привет 你好 & <|im_end|> [SEP] <eos>",
    "long": "the quick brown fox jumps over 13 lazy dogs, and it is fine: " * 3,
}


SIZES = {"tile": (56, 56), "cut": (100, 70), "long": (60, 170)}
# Of models in which every token sees every other.
AROUND = {"mixed": ("the red square in the middle of", " and 13 lazy dogs on a page")}


def make(name: str) -> None:
    """Writes the file of one family."""
    model = FAMILIES[name]
    shapes = family_reference.shapes(model)
    weights = family.weights(model, shapes)
    sizes = SIZES if name in VISION_FAMILIES else {}
    around = AROUND if name == "embeddinggemma2_vision" else {}
    if around:  # one picture that is taken whole says as much as two
        sizes = {"long": SIZES["long"], **dict.fromkeys(around, (70, 100))}
    kind = vision_reference.VisionReference if sizes else family_reference.FamilyReference
    reference = kind(model, weights)
    arrays = {}
    texts = {} if sizes else TEXTS
    for key, text in texts.items():
        ids = reference.tokenize(text)
        arrays[f"{key}/ids"] = ids.astype(np.int32)
        arrays[f"{key}/hidden"] = reference.hidden(ids).astype(np.float32)
        arrays[f"{key}/pooled"] = reference.vector(ids)
    for key, size in sizes.items():
        inputs = reference.process(tiny.pixels(*size), "{}".join(around.get(key, ("", ""))))
        hidden = reference.picture_hidden(inputs)
        arrays[f"{key}/tiles"] = _in_bytes(model, inputs.tiles)
        arrays[f"{key}/ids"] = inputs.ids.astype(np.int32)
        arrays[f"{key}/vit"] = reference.vit(inputs).astype(np.float32)
        arrays[f"{key}/hidden"] = hidden.astype(np.float32)
        arrays[f"{key}/pooled"] = sequences.unit_mean(hidden)
    meta = {
        "shapes": shapes,
        "weights_sha256": tiny.sha256(weights),
        "texts": texts,
        "pictures": sizes,
        "around": around,
    }
    path = family_golden.path(name)
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{path}: {path.stat().st_size:,} bytes")


def _in_bytes(model: VisionFamily, tiles: NDArray[np.float32]) -> NDArray[np.uint8]:
    mean = np.array(model.processor_arguments.get("image_mean", MEAN))
    std = np.array(model.processor_arguments.get("image_std", STD))
    return np.rint((tiles * std + mean) * 255).astype(np.uint8)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", default=sorted(FAMILIES))
    for name in parser.parse_args().families:
        make(name)


if __name__ == "__main__":
    main()
