"""How many pages an hour do so many workers embed, and in how much memory?

    python benchmarks/bench_capacity.py [--model M.gguf --mmproj P.gguf] [--output FILE.json]
    python benchmarks/bench_capacity.py --page 0.2 1.5 4.0 --threads 1 --cores 8

Measures what a page takes in this process (--page gives the numbers instead: processor seconds, or
seconds of a GPU, then private and shared GB), and puts them into the formulas of
common/capacity.py for 1 to 1,000 workers of --threads threads on machines of --cores cores.
Columns:
    workers         in all
    machines        that hold them
    pages per hour  with work for all
    10^6 pages, h   hours for a million
    GB per machine  10^9 bytes on a full machine
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, options, process, table
from common.capacity import Fleet, Page

import jmm

WORKERS = (1, 2, 4, 16, 64, 250, 1000)
COLUMNS = ("workers", "machines", "pages per hour", "10^6 pages, h", "GB per machine")


def measure(arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Per page the seconds and the processor seconds; the memory after it."""
    rng = np.random.default_rng(0)
    files = (arguments.model, arguments.mmproj)
    found = []
    with jmm.Embedder(*files, profile=arguments.profile, n_threads=arguments.threads) as embedder:
        for _ in range(arguments.pages):
            picture = rng.integers(0, 256, (arguments.height, arguments.width, 3), np.uint8)
            start, busy = time.perf_counter(), time.process_time()
            if not np.isfinite(embedder.encode_images(picture)).all():
                raise SystemExit("a page gave NaN or infinity")
            seconds, cpu = time.perf_counter() - start, time.process_time() - busy
            found.append({"seconds": seconds, "cpu_seconds": cpu, **process.memory()})
    return found


def page_of(cases: list[dict[str, float]]) -> Page:
    """The median page. What is resident and not of files is private."""
    last = cases[-1]
    return Page(
        statistics.median(case["cpu_seconds"] for case in cases),
        last["peak"] - last["file"],
        last["file"],
    )


def tables(report: dict[str, Any]) -> str:
    """Of a kept run, as Markdown."""
    command = report["command"]
    settings = (command["threads"], command["cores"], command["efficiency"])
    return fleets(page_of(report["cases"]), *settings)


def fleets(page: Page, threads: int, cores: int, efficiency: float) -> str:
    """The page and the fleets as Markdown."""
    rows = []
    for workers in WORKERS:
        fleet = Fleet(workers, threads, cores, efficiency)
        rows.append(
            [
                f"{workers:,}",
                f"{fleet.machines:,}",
                f"{fleet.pages_per_hour(page):,.0f}",
                table.number(fleet.hours(page, 10**6)),
                table.number(fleet.memory_per_machine(page) / 1e9),
            ]
        )
    head = (
        f"a page: {table.number(page.cpu_seconds)} s of work, "
        f"{table.number(page.private_bytes / 1e9)} GB private and "
        f"{table.number(page.shared_bytes / 1e9)} GB shared; workers of {threads} threads at "
        f"{efficiency:.0%} on machines of {cores} cores"
    )
    return f"{head}\n\n{table.markdown(COLUMNS, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--page",
        type=float,
        nargs=3,
        metavar=("SECONDS", "PRIVATE_GB", "SHARED_GB"),
        help="what was measured elsewhere",
    )
    parser.add_argument("--model", type=Path, help="default: the built-in one")
    parser.add_argument("--mmproj", type=Path)
    parser.add_argument("--profile")
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--height", type=int, default=2339, help="of a page; A4 at 200 dpi")
    parser.add_argument("--width", type=int, default=1654)
    parser.add_argument("--threads", type=int, default=2, help="of a worker")
    parser.add_argument("--cores", type=int, default=64, help="of a machine")
    parser.add_argument("--efficiency", type=float, default=1.0)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    if arguments.page:
        seconds, private, shared = arguments.page
        page = Page(seconds, private * 1e9, shared * 1e9)
        print(fleets(page, arguments.threads, arguments.cores, arguments.efficiency))
        return
    report = options.begin(arguments, "capacity", {"jmm": jmm_build.describe()})
    report["cases"] = measure(arguments)
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
