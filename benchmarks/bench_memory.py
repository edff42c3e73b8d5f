"""How much memory does a picture take, and how long until a model is ready?

    python benchmarks/bench_memory.py [--sizes 784 1568 2240] [--engines jmm:q4_k_m stock:q4_k_m]

Each engine and size has a fresh process: it loads the model, embeds one picture and tells its peak.
Loading is repeated with the files in the page cache; importing is timed in an empty interpreter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

import models
from common import inputs, options, table
from common.shape import parse_layers
from common.team import EngineError, Spec

ENGINES = ["jmm:q4_k_m", "stock:q4_k_m"]
MODULES = {"jmm": "jmm", "torch": "transformers", "openvino": "openvino"}
_TIMED_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def peaks(arguments: argparse.Namespace, spec: Spec, size: tuple[int, int]) -> dict[str, Any]:
    """Memory after loading and after one picture, in bytes."""
    height, width = size
    try:
        with options.start(arguments, spec) as worker:
            loaded = worker.ask(op="memory")
            answer = worker.ask(op="pictures", height=height, width=width, count=1, seed=1)
            found = {"loaded": loaded, "embedded": worker.ask(op="memory")}
            return found | {"seconds": answer["total"], "info": worker.ready["info"]}
    except EngineError as error:
        print(f"failed: {error}", file=sys.stderr)
        return {}


def loading(arguments: argparse.Namespace, spec: Spec) -> dict[str, Any]:
    """Seconds to import the engine's module and to load the model, again and again."""
    _read_files(arguments, spec)
    imports, loads = [], []
    for _ in range(arguments.repeats):
        if spec.engine in MODULES:
            imports.append(_import_seconds(arguments, spec))
        with options.start(arguments, spec) as worker:
            loads.append(worker.ready["load"])
    return {"import": imports, "load": loads}


def _import_seconds(arguments: argparse.Namespace, spec: Spec) -> float:
    python = options.interpreters(arguments).get(spec.label or spec.engine, sys.executable)
    command = [python, "-c", _TIMED_IMPORT.format(MODULES[spec.engine])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def files(arguments: argparse.Namespace, spec: Spec) -> list[Any]:
    if spec.engine not in options.READS_FILES:
        return []
    layers = parse_layers(arguments.layers)
    return list(models.pair(arguments.models, layers, options.FILE_TYPES[spec.kind]))


def _read_files(arguments: argparse.Namespace, spec: Spec) -> None:
    for path in files(arguments, spec):
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def tables(report: dict[str, Any]) -> str:
    sizes = report["command"]["sizes"]
    columns = ["GB", "files", "loaded", *(f"{size} px" for size in sizes), "import s", "load s"]
    rows = []
    for name, case in report["cases"].items():
        found = [case["peaks"].get(size) or {} for size in sizes]
        loaded = next((peak["loaded"]["now"] for peak in found if peak), None)
        cells = [case["file_bytes"] or None, loaded]
        cells += [peak["embedded"]["peak"] if peak else None for peak in found]
        rows.append([name, *(table.number(None if c is None else c / 1e9) for c in cells)])
        for step in ("import", "load"):
            times = [{step: seconds} for seconds in case["loading"].get(step, [])]
            rows[-1].append(table.number(table.median(times, step)))
    return table.markdown(columns, rows)


def main() -> None:
    parser = options.parser(__doc__, ENGINES)
    parser.add_argument("--sizes", nargs="*", default=["784", "1568", "2240"], help="pixels")
    parser.add_argument("--no-loading", action="store_true", help="leave the times out")
    arguments = parser.parse_args()
    report = options.report(arguments, "memory", []) | {"cases": {}}
    for text in arguments.engines:
        spec = Spec.parse(text)
        case: dict[str, Any] = {
            "file_bytes": sum(os.path.getsize(path) for path in files(arguments, spec)),
            "peaks": {
                size: peaks(arguments, spec, inputs.parse_size(size)) for size in arguments.sizes
            },
            "loading": {} if arguments.no_loading else loading(arguments, spec),
        }
        for peak in case["peaks"].values():
            report["engines"][text] = peak.pop("info", None) or report["engines"].get(text)
        report["cases"][text] = case
        options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
