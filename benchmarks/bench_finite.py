"""Is every vector of many pictures finite?

    python benchmarks/bench_finite.py [--engines jmm:f16 jmm:bf16] [--device CUDA0] [--pictures 500]

Pictures of noise, of many sizes and contrasts, with models of true widths. Columns:
    engine    weights and device
    pictures  how many were embedded
    bad       how many have a vector with NaN or infinity
"""

from __future__ import annotations

from typing import Any

import models
import numpy as np
from common import options, table
from common.shape import parse_layers

import jmm

LARGEST = 560


def pictures(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n):
        height, width = rng.integers(28, LARGEST, 2)
        low, high = sorted(rng.integers(0, 256, 2))
        found.append(rng.integers(low, high + 1, (height, width, 3)).astype(np.uint8))
    return found


def tables(report: dict[str, Any]) -> str:
    rows = [[case["engine"], str(case["pictures"]), str(case["bad"])] for case in report["cases"]]
    return table.markdown(["engine", "pictures", "bad"], rows)


def main() -> None:
    parser = options.parser(__doc__, ["jmm:f16", "jmm:bf16"])
    options.add_device(parser)
    parser.add_argument("--pictures", type=int, default=500)
    arguments = parser.parse_args()
    report = options.begin(arguments, "finite", {"jmm": {"build": jmm.build_info()}})
    report["cases"] = []
    for engine in arguments.engines:
        kind = options.FILE_TYPES[engine.removeprefix("jmm:")]
        pair = models.pair(arguments.models, parse_layers(arguments.layers), kind)
        with jmm.Embedder(*pair, n_threads=arguments.threads, device=arguments.device) as embedder:
            vectors = embedder.encode_images(pictures(arguments.pictures), on_error="nan")
            name = f"{engine} on {embedder.info['device']}"
        bad = int((~np.isfinite(vectors).all(1)).sum())
        report["cases"].append({"engine": name, "pictures": arguments.pictures, "bad": bad})
        options.keep(arguments, report)
    print(tables(report))
    if any(case["bad"] for case in report["cases"]):
        raise SystemExit("some vectors are not finite")


if __name__ == "__main__":
    main()
