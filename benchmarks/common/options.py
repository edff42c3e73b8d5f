"""Arguments that all model benchmarks take, and the workers they ask for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import models

from common import machine
from common.shape import HELP_LAYERS, parse_layers
from common.team import EngineError, Spec, Worker

FILE_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_k_m": "Q4_K_M"}
_HIDDEN = ("models", "output", "python", "make")
# Engines that read no files take the float32 values that the files are made of.
READS_FILES = ("jmm", "stock")


def parser(doc: str, engines: list[str]) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=doc.partition("\n\n")[0],
        epilog="Engines: jmm and stock with :f32 :f16 :bf16 :q8_0 :q4_k_m, torch with :f32 :bf16, "
        "openvino with :f32 :bf16 :int8. @LABEL runs it in another interpreter, see --python.",
    )
    result.add_argument("--engines", nargs="+", default=engines, metavar="NAME:WEIGHTS[@LABEL]")
    result.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="LABEL=PATH",
        help="interpreter of the engines marked @LABEL, or of all engines of that name",
    )
    result.add_argument("--layers", default="few", help=HELP_LAYERS)
    result.add_argument("--threads", type=int, default=machine.cores())
    result.add_argument("--repeats", type=int, default=5)
    result.add_argument("--models", type=Path, default=models.default_folder())
    result.add_argument("--output", type=Path, help="keep the results as JSON")
    return result


def add_device(parser: argparse.ArgumentParser) -> None:
    """For the benchmarks that can run on a GPU."""
    parser.add_argument("--device", default="cpu", help="of jmm and torch: cpu, CUDA0, ...")


def start(arguments: argparse.Namespace, spec: Spec) -> Worker:
    """Starts one engine; writes its model if it is missing.

    Raises:
        EngineError: It is not available.
    """
    layers = parse_layers(arguments.layers)
    config: dict[str, Any] = {
        "layers": layers,
        "n_threads": arguments.threads,
        "device": getattr(arguments, "device", "cpu"),
        "instruction_sets": machine.describe()["instruction_sets"],
    }
    if spec.engine in READS_FILES:
        if spec.kind not in FILE_TYPES:
            raise EngineError(f"{spec}: weights are one of {', '.join(FILE_TYPES)}")
        text, tower = models.pair(arguments.models, layers, FILE_TYPES[spec.kind])
        config |= {"text": str(text), "tower": str(tower)}
    return Worker(spec, config, interpreters(arguments))


def interpreters(arguments: argparse.Namespace) -> dict[str, str]:
    """Paths of --python by their label."""
    return dict(entry.split("=", 1) for entry in arguments.python)


def start_all(arguments: argparse.Namespace, *, ceiling: bool = False) -> list[Worker]:
    """Starts what can be started and says what cannot; ends the program if nothing can."""
    workers = []
    for text in arguments.engines:
        try:
            workers.append(start(arguments, Spec.parse(text)))
        except EngineError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not workers:
        sys.exit("no engine is available")
    if ceiling:
        workers.append(start(arguments, Spec("ceiling")))
    return workers


def report(arguments: argparse.Namespace, benchmark: str, workers: list[Worker]) -> dict[str, Any]:
    """What the JSON file of a benchmark with workers begins with."""
    return begin(arguments, benchmark, {w.name: w.ready["info"] for w in workers})


def begin(arguments: argparse.Namespace, benchmark: str, engines: dict[str, Any]) -> dict[str, Any]:
    """What every JSON file begins with; folders of this machine are left out.

    Args:
        arguments: Of the command.
        benchmark: The program's name after ``bench_``.
        engines: What is measured, by name: builds and versions.
    """
    command = {name: value for name, value in vars(arguments).items() if name not in _HIDDEN}
    command |= {name: value.name for name, value in command.items() if isinstance(value, Path)}
    return {
        "benchmark": benchmark,
        "command": command,
        "machine": machine.describe(),
        "engines": engines,
    }


def keep(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    """Writes the report; called after each case, so that a broken run keeps what it has."""
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
