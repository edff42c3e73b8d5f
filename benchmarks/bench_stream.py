"""Does a stream of pictures keep its memory?

    python benchmarks/bench_stream.py [--items 10000] [--side 56] [--output FILE.json]

One process takes pictures of changing sizes through `Embedder.encode_iter` with the built-in model
(or --model and --mmproj), and reads its own resident memory along the way, after freed memory was
given back to the system. Columns:
    items   pictures so far
    MB      resident memory
    /s      pictures per second since the line before
The last line is the slope of a straight line through the second half, in KB per picture.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, options, table

import jmm


def resident_mb() -> float:
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def pictures(n: int, side: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(n):
        height, width = rng.integers(side, 2 * side, 2)
        yield rng.integers(0, 256, (height, width, 3), np.uint8)


def measure(arguments: argparse.Namespace) -> list[dict[str, float]]:
    lines = []
    step = max(1, arguments.items // 10)
    with jmm.Embedder(arguments.model, arguments.mmproj) as embedder:
        start = time.perf_counter()
        stream = embedder.encode_iter(pictures(arguments.items, arguments.side), kind="image")
        for index, vector in enumerate(stream, 1):
            if not np.isfinite(vector).all():
                raise SystemExit(f"picture {index} gave NaN or infinity")
            if index % step == 0:
                seconds = time.perf_counter() - start
                lines.append({"items": index, "mb": resident_mb(), "per_second": step / seconds})
                start = time.perf_counter()
    return lines


def slope_kb(lines: list[dict[str, float]]) -> float:
    """Of a straight line through the second half, KB per picture."""
    late = lines[len(lines) // 2 :]
    slope, _ = np.polyfit([line["items"] for line in late], [line["mb"] for line in late], 1)
    return float(slope * 1024)


def tables(report: dict[str, Any]) -> str:
    rows = [
        [f"{line['items']:,}", f"{line['mb']:.1f}", f"{line['per_second']:.0f}"]
        for line in report["cases"]
    ]
    slope = f"slope of the second half: {slope_kb(report['cases']):.3f} KB per picture"
    return f"{table.markdown(['items', 'MB', '/s'], rows)}\n\n{slope}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument(
        "--side", type=int, default=56, help="pictures have sides from this to twice"
    )
    parser.add_argument(
        "--model", type=Path, help="GGUF of the language model; default: the built-in one"
    )
    parser.add_argument("--mmproj", type=Path, help="GGUF of the vision tower")
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    report = options.begin(arguments, "stream", {"jmm": jmm_build.describe()})
    report["cases"] = measure(arguments)
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
