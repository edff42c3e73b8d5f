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
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

from jmm.preprocess import grid_for, patchify, preprocess

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


def measure(image: Image.Image, repeats: int) -> dict[str, dict[str, float]]:
    timed = calls(image)
    pictures = {name: max(1, round(0.05 / seconds(call, 1, 1))) for name, call in timed.items()}
    samples: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for name, call in timed.items():
            for threads in (1, 2):
                taken = seconds(call, threads, pictures[name])
                samples.setdefault((name, threads), []).append(taken * 1e3)
    return {
        name: {
            "ms": round(statistics.median(samples[name, 1]), 3),
            "ms_2_threads": round(statistics.median(samples[name, 2]), 3),
        }
        for name in timed
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "pillow": PIL.__version__,
        "numpy": np.__version__,
        "repeats": arguments.repeats,
        "sizes": {},
    }
    columns = ("resize", "patchify", "preprocess", "reference")
    print(f"{'':22}" + "".join(f"{name:>22}" for name in columns))
    print(f"{'':22}" + f"{'1 thread, 2 threads':>22}" * 4 + f"{'patchify/resize':>18}")
    for label, (height, width) in SIZES.items():
        row = measure(picture(height, width), arguments.repeats)
        report["sizes"][label] = row
        cells = (
            f"{row[name]['ms']:.2f}, {row[name]['ms_2_threads']:.2f}" if name in row else "-"
            for name in columns
        )
        ratio = row["patchify"]["ms"] / row["resize"]["ms"]
        print(f"{label:22}" + "".join(f"{cell:>22}" for cell in cells) + f"{ratio:18.2f}")
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
