"""Does memory grow over thousands of pictures, or over engines that come and go?

    python benchmarks/bench_soak.py [--pictures 5000] [--cycles 200] [--output soak.json]

The built-in model. Pictures have sides of 1 to 1000 pixels and come as arrays, PNG and JPEG, one
call each. Every hundredth picture or tenth cycle, freed memory is given back (malloc_trim) and the
process is looked at. Columns:
    slope    bytes per picture or cycle: the line through all looks but the first fifth
    first    MB of resident memory after that fifth
    last     MB at the end
    threads  more than after that fifth
    files    more open files than after that fifth
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import io
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, machine, options, table
from PIL import Image

import jmm

WARM_UP = 0.2
COLUMNS = ("slope", "first", "last", "threads", "files")
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)


def look() -> tuple[int, int, int]:
    """Bytes of resident memory, threads and open files."""
    gc.collect()
    trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        pages * resource.getpagesize(),
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
    )


def soak(step: Callable[[int], object], n: int, every: int) -> list[tuple[int, int, int, int]]:
    """Runs ``step`` n times; steps done and what `look` saw, every so often."""
    looks = []
    for i in range(n):
        step(i)
        if (i + 1) % every == 0:
            looks.append((i + 1, *look()))
    return looks


def judge(looks: list[tuple[int, int, int, int]]) -> dict[str, float]:
    """The columns."""
    kept = np.array(looks[int(len(looks) * WARM_UP) :], float)
    slope = np.polyfit(kept[:, 0], kept[:, 1], 1)[0]
    megabytes = kept[[0, -1], 1] / 2**20
    threads, files = kept[-1, 2:] - kept[0, 2:]
    return dict(zip(COLUMNS, (slope, *megabytes, threads, files), strict=True))


def picture(rng: np.random.Generator, i: int) -> Any:
    """An array, or the bytes of a file."""
    height, width = rng.integers(1, 1001, 2)
    height, width = max(height, width // 200 + 1), max(width, height // 200 + 1)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if i % 3 == 0:
        return pixels
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG" if i % 3 == 1 else "JPEG", compress_level=1)
    return file.getvalue()


def pictures(n: int, n_threads: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(0)
    with jmm.Embedder(n_threads=n_threads, max_pixels=50_000) as embedder:
        return soak(lambda i: embedder.encode_images(picture(rng, i)), n, 100)


def cycles(n: int, n_threads: int) -> list[tuple[int, int, int, int]]:
    pixels = np.zeros((56, 84, 3), np.uint8)

    def step(i: int) -> None:
        embedder = jmm.Embedder(n_threads=n_threads)
        embedder.encode_document(["a page", pixels])
        if i % 2:
            embedder.close()

    return soak(step, n, 10)


def tables(report: dict[str, Any]) -> str:
    rows = []
    for name in ("pictures", "cycles"):
        found = judge(report[name])
        cells = [f"{found[column]:.1f}" for column in COLUMNS[:3]]
        rows.append([f"{report[name][-1][0]} {name}", *cells])
        rows[-1] += [f"{found[column]:.0f}" for column in COLUMNS[3:]]
    return table.markdown(["", *COLUMNS], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    report = options.begin(arguments, "soak", {"jmm": jmm_build.describe()})
    report["cycles"] = cycles(arguments.cycles, arguments.threads)
    report["pictures"] = pictures(arguments.pictures, arguments.threads)
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
