"""How long does a picture take to become patches, beside Pillow's resize and the reference?

    python benchmarks/bench_preprocess.py [--repeats 7] [--output FILE.json]

Columns, medians of interleaved repeats, in milliseconds per picture:
    resize      Pillow's bicubic resize to the grid's size alone
    patchify    jmm: normalise and cut the resized picture
    preprocess  jmm: resize and patchify
    reference   transformers' Qwen2VLImageProcessorPil, "-" where transformers is missing
    2 threads   the same call in two threads at once, wall time divided by the pictures done
Decoding a file and the conversion to RGB are not timed. max_pixels is 602112 (768 tokens).
A resize to the same size is only a copy, so there the ratio to it says nothing.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from common import jmm_build, options, table
from PIL import Image

from jmm.preprocess import grid_for, patchify, preprocess

COLUMNS = ("resize", "patchify", "preprocess", "reference")
LIMITS = {"min_pixels": 3136, "max_pixels": 602_112}
SIZES = {
    "224x224 icon": (224, 224),
    "300x200 thumbnail": (200, 300),
    "784x768 at the limit": (768, 784),
    "1600x1200 photo": (1200, 1600),
    "2500x3500 page": (3500, 2500),
}


def picture(height: int, width: int) -> Image.Image:
    """Smooth colours with noise on top, the same for every run."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    noise = rng.integers(-8, 9, smooth.shape)
    return Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))


def calls(image: Image.Image) -> dict[str, Callable[[], object]]:
    _, grid_h, grid_w = grid_for(image.height, image.width, **LIMITS)
    size = grid_w * 14, grid_h * 14
    resized = image.resize(size, Image.Resampling.BICUBIC)
    result: dict[str, Callable[[], object]] = {
        "resize": lambda: image.resize(size, Image.Resampling.BICUBIC),
        "patchify": lambda: patchify(np.asarray(resized)),
        "preprocess": lambda: preprocess(image, **LIMITS),
    }
    try:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )
    except ImportError:
        return result
    processor = Qwen2VLImageProcessorPil(**LIMITS)
    result["reference"] = lambda: processor(image, return_tensors="np")
    return result


def seconds(call: Callable[[], object], threads: int, pictures: int) -> float:
    """Wall time per picture when ``threads`` threads make ``pictures`` calls each."""

    def work() -> None:
        for _ in range(pictures):
            call()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - start) / (threads * pictures)


def measure(image: Image.Image, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Seconds per picture of all repetitions, on one thread and on two."""
    timed = calls(image)
    pictures = {name: max(1, round(0.05 / seconds(call, 1, 1))) for name, call in timed.items()}
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, call in timed.items():
            one, two = (seconds(call, threads, pictures[name]) for threads in (1, 2))
            answers[name].append({"total": one, "total_2_threads": two})
    return answers


def tables(report: dict[str, Any]) -> str:
    rows = []
    for label, answers in report["cases"].items():
        one, two = (
            {name: table.median(some, field) for name, some in answers.items()}
            for field in ("total", "total_2_threads")
        )
        cells = (
            f"{one[name] * 1e3:.2f}, {two[name] * 1e3:.2f}" if name in one else "-"
            for name in COLUMNS
        )
        rows.append([label, *cells, f"{one['patchify'] / one['resize']:.2f}"])
    return table.markdown(["ms, 1 thread, 2 threads", *COLUMNS, "patchify / resize"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    info = jmm_build.describe() | {"pillow": PIL.__version__}
    report = options.begin(arguments, "preprocess", {"jmm": info}) | {"cases": {}}
    for label, (height, width) in SIZES.items():
        report["cases"][label] = measure(picture(height, width), arguments.repeats)
        options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
