"""How long until the built-in model answers?

    python benchmarks/bench_load.py [--repeats 9]

Each turn is a process of its own, after one that warms the disk's cache. Columns, medians in
milliseconds:
    import      import jmm
    Embedder()  the built-in model, loaded
    first text  one query, which sizes what the model computes in
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import jmm_build, machine, options, table

COLUMNS = ("import", "Embedder()", "first text")
TURN = """
import json, sys, time
times = [time.perf_counter()]
import jmm
times.append(time.perf_counter())
with jmm.Embedder(n_threads=int(sys.argv[1])) as embedder:
    times.append(time.perf_counter())
    embedder.encode_query("a red circle")
    times.append(time.perf_counter())
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


def turn(n_threads: int) -> dict[str, float]:
    """Seconds of one process."""
    command = [sys.executable, "-c", TURN, str(n_threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(zip(COLUMNS, json.loads(done.stdout), strict=True))


def tables(report: dict[str, Any]) -> str:
    medians = [table.median(report["repetitions"], name) for name in COLUMNS]
    cells = ["-" if value is None else f"{value * 1e3:.0f}" for value in medians]
    return table.markdown(["ms", *COLUMNS], [["built-in model", *cells]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    report = options.begin(arguments, "load", {"jmm": jmm_build.describe()})
    turn(arguments.threads)
    report["repetitions"] = [turn(arguments.threads) for _ in range(arguments.repeats)]
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
