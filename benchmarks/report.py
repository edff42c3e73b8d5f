"""Turns kept results into Markdown tables and a plot.

    python benchmarks/report.py results/RUN.json [...] [--markdown FILE.md] [--plot FILE.png]

The plot takes runs of bench_image.py, of equal layers and threads: seconds per picture over its
side, a line per engine. It needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

from common import table

LIBRARIES = ("torch", "transformers", "openvino", "numpy", "pillow", "colpali-engine")
SETTINGS = ("threads", "layers", "type", "texts", "tokens", "items", "repeats")


def heading(report: dict[str, Any]) -> str:
    """What was run on what, and every engine's versions."""
    machine, command = report["machine"], report["command"]
    told = [f"{machine['cpu']}, {machine['cores_allowed']} cores"]
    told += [f"{name}: {command[name]}" for name in SETTINGS if name in command]
    told += [", ".join(machine["instruction_sets"])]
    return f"## {report['benchmark']}\n\n{'; '.join(told)}. {versions(report)}"


def versions(report: dict[str, Any]) -> str:
    """The libraries that the engines name, each once."""
    found = {}
    for info in report["engines"].values():
        info = info or {}
        found |= {name: info[name] for name in LIBRARIES if info.get(name)}
        if "build" in info:
            found["llama.cpp"] = (
                f"{info['build']['llama_cpp']}, {len(info['build']['patches'])} patches"
            )
    return "; ".join(f"{name} {version}" for name, version in sorted(found.items())) + "."


def markdown(reports: list[dict[str, Any]]) -> str:
    parts = []
    for report in reports:
        bench = importlib.import_module(f"bench_{report['benchmark']}")
        parts.append(f"{heading(report)}\n\n{bench.tables(report)}")
    return "\n\n".join(parts) + "\n"


def series(reports: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Per engine (side in pixels, seconds per picture), in order; one picture at a time.

    The side is that of a square with the picture's area.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for report in reports:
        cases = report["cases"] if report["benchmark"] == "image" else []
        for case in cases:
            if case["count"] != 1:
                continue
            for name, answers in case["repetitions"].items():
                seconds = table.median(answers, "total")
                if seconds is not None:
                    side = math.sqrt(case["height"] * case["width"])
                    lines.setdefault(name, []).append((side, seconds))
    return {name: sorted(points) for name, points in lines.items()}


def plot(reports: list[dict[str, Any]], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    lines = series(reports)
    if not lines:
        sys.exit("--plot needs a run of bench_image.py with --batch 1")
    if len({(r["command"]["layers"], r["command"]["threads"]) for r in reports}) > 1:
        sys.exit("--plot needs runs with the same layers and threads")
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axes.set(xscale="log", yscale="log", xlabel="side of the picture, pixels", ylabel="seconds")
    sides = sorted({side for points in lines.values() for side, _ in points})
    axes.set_xticks(sides, [f"{side:.0f}" for side in sides], minor=False)
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
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
