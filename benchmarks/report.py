"""Turns kept results into Markdown tables and a plot.

    python benchmarks/report.py results/RUN.json [...] [--markdown FILE.md] [--plot FILE.png]

The plot takes the runs of bench_image.py: seconds per picture over its size, a line per engine.
It needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from common import table


def heading(report: dict[str, Any]) -> str:
    """What was run on what, and every engine's versions."""
    machine, command = report["machine"], report["command"]
    lines = [
        f"## {report['benchmark']}",
        f"{machine['cpu']}, {machine['cores_allowed']} cores, {command['threads']} threads, "
        f"{', '.join(machine['instruction_sets'])}; layers: {command['layers']}; "
        f"medians of {command['repeats']}.",
    ]
    return "\n\n".join(lines)


def markdown(reports: list[dict[str, Any]]) -> str:
    parts = []
    for report in reports:
        bench = importlib.import_module(f"bench_{report['benchmark']}")
        parts.append(f"{heading(report)}\n\n{bench.tables(report)}")
    return "\n\n".join(parts) + "\n"


def series(reports: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Per engine (megapixels, seconds per picture), in order of size, at one picture at a time."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for report in reports:
        cases = report["cases"] if report["benchmark"] == "image" else []
        for case in cases:
            if case["count"] != 1:
                continue
            for name, answers in case["repetitions"].items():
                seconds = table.median(answers, "total")
                if seconds is not None:
                    megapixels = case["height"] * case["width"] / 1e6
                    lines.setdefault(name, []).append((megapixels, seconds))
    return {name: sorted(points) for name, points in lines.items()}


def plot(reports: list[dict[str, Any]], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = series(reports)
    if not lines:
        sys.exit("--plot needs a run of bench_image.py with --batch 1")
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axes.set(xscale="log", yscale="log", xlabel="megapixels", ylabel="seconds per picture")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    machine = reports[0]["machine"]
    axes.set_title(f"{machine['cpu']}, {reports[0]['command']['threads']} threads", fontsize=10)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--markdown", type=Path, help="file to write; default is the terminal")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in arguments.results]
    text = markdown(reports)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    else:
        print(text, end="")
    if arguments.plot:
        plot(reports, arguments.plot)


if __name__ == "__main__":
    main()
