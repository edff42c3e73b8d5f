"""What does a picture cost, from patches to vector, beside PyTorch, OpenVINO and stock llama.cpp?

    python benchmarks/bench_image.py [--engines jmm:f16 stock:f16] [--sizes 784] [--batch 1]

Every engine is a process of its own, all take turns within one run; README.md defines the columns.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
from common import flops, inputs, options, table
from common.shape import parse_layers, true_width
from common.team import Worker, close_all, in_turns, warm_up

ENGINES = ["jmm:f16", "jmm:bf16", "jmm:q8_0", "jmm:q4_k_m", "torch:bf16", "torch:f32", "stock:f16"]
COLUMNS = (
    "engine",
    "vision s",
    "language s",
    "total s",
    "least s",
    "/ {baseline}",
    "TFLOP/s",
    "of ceiling",
    "cosine",
)


def operations(layers: str, height: int, width: int, count: int) -> dict[str, int]:
    model = true_width(parse_layers(layers))
    n_tokens = inputs.image_tokens(height, width) + len(inputs.MARKERS)
    return {
        "vision": count * flops.vision(model, height, width),
        "language": count * flops.language(model, n_tokens),
    }


def measure(
    workers: list[Worker], ceiling: Worker, height: int, width: int, count: int, repeats: int
) -> dict[str, Any]:
    """Repetitions of all engines for pictures of one size and number."""
    request = {"op": "pictures", "height": height, "width": width, "count": count}
    jobs, vectors = warm_up([(worker, request) for worker in workers])
    runs = in_turns([*jobs, (ceiling, {"op": "matmul"})], repeats)
    speeds = runs.pop(ceiling.name)
    return {
        "height": height,
        "width": width,
        "count": count,
        "repetitions": runs,
        "ceilings": {name: max(speed[name] for speed in speeds) for name in speeds[0]},
        "cosine": cosines(vectors),
        "load_average": round(os.getloadavg()[0], 1),
    }


def cosines(vectors: dict[str, Any]) -> dict[str, float]:
    """Each engine's lowest over the pictures, to a float32 engine if there is one, else the first.

    It shows that all compute the same, and not which is right.
    """
    truest = next((name for name in vectors if ":f32" in name), next(iter(vectors), ""))
    return {
        name: cosine(np.array(rows), np.array(vectors[truest])) for name, rows in vectors.items()
    }


def cosine(a: Any, b: Any) -> float:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / norms).min())


def table_of(case: dict[str, Any], baseline: str) -> str:
    """One case as Markdown."""
    work = case["operations"]["vision"] + case["operations"]["language"]
    title = (
        f"{case['height']} x {case['width']} pixels, {case['count']} at a time: "
        f"{work / 1e12:.3g} TFLOP, {case['operations']['vision'] / work:.0%} of them vision; "
        f"load average {case['load_average']}"
    )
    runs = case["repetitions"]
    totals = {name: table.median(answers, "total") for name, answers in runs.items()}
    base = totals.get(baseline)
    ceiling = max(case["ceilings"].values(), default=None)
    rows = []
    for name, total in totals.items():
        if total is None:
            rows.append([name, "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        rows.append(
            [
                name,
                table.number(table.median(runs[name], "vision")),
                table.number(table.median(runs[name], "language")),
                table.number(total),
                table.number(min(answer["total"] for answer in runs[name])),
                table.number(total / base if base else None),
                table.number(work / total / 1e12),
                f"{work / total / ceiling:.0%}" if ceiling else "-",
                f"{case['cosine'][name]:.5f}",
            ]
        )
    columns = [column.format(baseline=baseline) for column in COLUMNS]
    return f"{title}\n\n{table.markdown(columns, rows)}"


def tables(report: dict[str, Any]) -> str:
    """All cases, and the ceilings measured among them."""
    parts = [table_of(case, report["baseline"]) for case in report["cases"]]
    speeds: dict[str, float] = {}
    for case in report["cases"]:
        for name, speed in case["ceilings"].items():
            speeds[name] = max(speed, speeds.get(name, 0))
    found = ", ".join(f"{name} {speed / 1e12:.3g} TFLOP/s" for name, speed in speeds.items())
    return "\n\n".join([*parts, f"Ceiling: {found or 'not measured'}."])


def main() -> None:
    parser = options.parser(__doc__, ENGINES)
    options.add_device(parser)
    parser.add_argument("--sizes", nargs="+", default=["784"], help="pixels, as 784 or 784x1120")
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="pictures at a time")
    parser.add_argument("--baseline", help="engine that the ratio is to; default is the first")
    arguments = parser.parse_args()
    sizes = [inputs.parse_size(size) for size in arguments.sizes]
    workers = options.start_all(arguments, ceiling=True)
    engines, ceiling = workers[:-1], workers[-1]
    report = options.report(arguments, "image", workers)
    report |= {"baseline": arguments.baseline or engines[0].name, "cases": []}
    for (height, width), count in itertools.product(sizes, arguments.batch):
        case = measure(engines, ceiling, height, width, count, arguments.repeats)
        case["operations"] = operations(arguments.layers, height, width, count)
        report["cases"].append(case)
        print(f"\n{table_of(case, report['baseline'])}", flush=True)
        options.keep(arguments, report)
    close_all(workers)


if __name__ == "__main__":
    main()
