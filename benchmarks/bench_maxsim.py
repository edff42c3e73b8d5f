"""How long do late-interaction scores take, beside colpali-engine and the dot products alone?

    python benchmarks/bench_maxsim.py [--cases NAME ...] [--repeats 5] [--output FILE.json]

Columns, medians of interleaved repeats, in milliseconds per call:
    products  numpy's matmul of all query tokens with each page's tokens, nothing kept
    jmm       jmm.maxsim
    colpali   colpali-engine's score_multi_vector on the CPU, "-" where it or torch is missing
Vectors are random, float32, of dim 128 and unit length, a list of arrays per side; tensors share
their memory. Each side has the threads that its library takes by itself (OPENBLAS_NUM_THREADS,
OMP_NUM_THREADS). The ratios are of wall and of processor time. `difference` is the greatest
between the scores, over the greatest score.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, options, table

from jmm import maxsim

DIM = 128
ENGINES = ("products", "jmm", "colpali")
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


def oracle() -> tuple[Callable[..., Any], Any] | None:
    """colpali-engine's function and torch, None where they are missing."""
    try:
        import torch

        from support.oracles import score_multi_vector
    except ImportError:
        return None
    return score_multi_vector, torch


def engines() -> dict[str, Any]:
    """Versions, and how many threads each side takes."""
    found: dict[str, Any] = {
        "products": {"numpy": np.__version__},
        "jmm": jmm_build.describe() | {"threads": os.environ.get("OPENBLAS_NUM_THREADS")},
    }
    if there := oracle():
        _, torch = there
        found["colpali"] = {
            "colpali-engine": metadata.version("colpali-engine"),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }
    return found


def calls(queries: list[np.ndarray], pages: list[np.ndarray]) -> dict[str, Callable[[], Any]]:
    rows = np.concatenate(queries)

    def products() -> None:
        for page in pages:
            rows @ page.T

    result: dict[str, Callable[[], Any]] = {
        "products": products,
        "jmm": lambda: maxsim(queries, pages),
    }
    if there := oracle():
        score, torch = there
        sides = [[torch.from_numpy(item) for item in items] for items in (queries, pages)]
        result["colpali"] = lambda: score(*sides, device="cpu").numpy()
    return result


def measure(case: tuple[int, int, int, int], repeats: int) -> dict[str, Any]:
    """Seconds of all repetitions, and how far the scores are from colpali-engine's."""
    n_queries, query_tokens, n_pages, page_tokens = case
    timed = calls(unit(0, n_queries, query_tokens), unit(1, n_pages, page_tokens))
    scores = {name: call() for name, call in timed.items()}  # warms up as well
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, call in timed.items():
            start, busy = time.perf_counter(), time.process_time()
            call()
            busy = time.process_time() - busy
            answers[name].append({"total": time.perf_counter() - start, "processor": busy})
    result: dict[str, Any] = {"shape": case, "repetitions": answers}
    if "colpali" in scores:
        ours, theirs = (np.asarray(scores[name]) for name in ("jmm", "colpali"))
        result["difference"] = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    return result


def tables(report: dict[str, Any]) -> str:
    rows = []
    for name, case in report["cases"].items():
        total, busy = (
            {
                engine: value * 1e3
                for engine, answers in case["repetitions"].items()
                if (value := table.median(answers, field)) is not None
            }
            for field in ("total", "processor")
        )
        ratios = [
            f"{of['colpali'] / of['jmm']:.2f}" if "colpali" in of else "-" for of in (total, busy)
        ]
        rows.append(
            [
                name,
                "{} of {} x {} of {}".format(*case["shape"]),
                *(f"{total[e]:.1f}" if e in total else "-" for e in ENGINES),
                *ratios,
                f"{case['difference']:.1e}" if "difference" in case else "-",
            ]
        )
    columns = ["ms", "queries x documents", *ENGINES, "colpali / jmm", "in CPU time", "difference"]
    return table.markdown(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    report = options.begin(arguments, "maxsim", engines()) | {"cases": {}}
    for name in arguments.cases:
        report["cases"][name] = measure(CASES[name], arguments.repeats)
        options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
