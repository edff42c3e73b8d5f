"""How long do late-interaction scores take, beside colpali-engine and the dot products alone?

    python benchmarks/bench_maxsim.py [--cases NAME ...] [--repeats 5] [--output FILE.json]

Columns, medians of interleaved repeats, in milliseconds per call:
    products  numpy's matmul of all query tokens with each page's tokens, nothing kept
    jmm       jmm.maxsim
    colpali   colpali-engine's score_multi_vector on the CPU, "-" where it or torch is missing
Vectors are random, float32, of dim 128 and unit length, a list of arrays per side; tensors share
their memory. Each side has the threads that its library takes by itself (OPENBLAS_NUM_THREADS,
OMP_NUM_THREADS). `difference` is the greatest between the scores, over the greatest score.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jmm import maxsim

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
try:
    import torch

    from support.oracles import score_multi_vector
except ImportError:
    torch = score_multi_vector = None

DIM = 128
# Queries, tokens of each, documents, tokens of each.
CASES = {
    "pages": (100, 20, 1000, 780),
    "one-query": (1, 20, 1000, 780),
    "pooled-pages": (100, 20, 1000, 260),
    "texts": (100, 20, 5000, 30),
    "one-query-texts": (1, 20, 20_000, 30),
}


def unit(seed: int, items: int, tokens: int) -> list[np.ndarray]:
    rows = np.random.default_rng(seed).standard_normal((items, tokens, DIM), np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return list(rows)


def calls(queries: list[np.ndarray], pages: list[np.ndarray]) -> dict[str, Callable[[], object]]:
    rows = np.concatenate(queries)

    def products() -> None:
        for page in pages:
            rows @ page.T

    result: dict[str, Callable[[], object]] = {
        "products": products,
        "jmm": lambda: maxsim(queries, pages),
    }
    if score_multi_vector:
        sides = [[torch.from_numpy(item) for item in items] for items in (queries, pages)]
        result["colpali"] = lambda: score_multi_vector(*sides, device="cpu").numpy()
    return result


def measure(case: tuple[int, int, int, int], repeats: int) -> dict[str, float]:
    n_queries, query_tokens, n_pages, page_tokens = case
    timed = calls(unit(0, n_queries, query_tokens), unit(1, n_pages, page_tokens))
    scores = {name: call() for name, call in timed.items()}  # warms up as well
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, call in timed.items():
            start = time.perf_counter()
            call()
            samples[name].append((time.perf_counter() - start) * 1e3)
    row = {name: round(statistics.median(taken), 1) for name, taken in samples.items()}
    if "colpali" in scores:
        ours, theirs = (np.asarray(scores[name]) for name in ("jmm", "colpali"))
        row["difference"] = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch and torch.__version__,
        "threads": {
            "torch": torch and torch.get_num_threads(),
            "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS"),
        },
        "repeats": arguments.repeats,
        "cases": {},
    }
    columns = ("products", "jmm", "colpali")
    print(
        f"{'':16}{'queries x documents':>28}" + "".join(f"{name:>12}" for name in columns), end=""
    )
    print(f"{'colpali/jmm':>13}{'difference':>12}")
    for name in arguments.cases:
        case = CASES[name]
        row = measure(case, arguments.repeats)
        report["cases"][name] = {"shape": case, **row}
        shape = "{} of {} x {} of {}".format(*case)
        cells = "".join(f"{row[c]:>12.1f}" if c in row else f"{'-':>12}" for c in columns)
        print(f"{name:16}{shape:>28}{cells}", end="")
        if "colpali" in row:
            print(f"{row['colpali'] / row['jmm']:>13.2f}{row['difference']:>12.1e}", end="")
        print(flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
