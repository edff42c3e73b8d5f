"""What do smaller weights save, and how far do the vectors move?

    python benchmarks/bench_quantize.py [--types f32 bf16 q8_0] [--layers 2+2] [--size 448]

Every pair of a language model's and a tower's type embeds the same pictures, each in a process of
its own. The files are made by jmm.quantize_model from F32 ones. Weights are random, of
Qwen2.5-VL-3B's widths, with a vocabulary of single bytes. Processor seconds are counted, on one
thread unless told otherwise: threads that wait for each other count as busy.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import models
import numpy as np
from common import inputs, jmm_build, options, table
from common.shape import HELP_LAYERS, parse_layers, true_width
from common.team import EngineError, Spec, Worker
from numpy.typing import NDArray

from jmm import quantize_model
from support.tiny import TinyModel

TYPES = ["f32", "bf16", "q8_0", "q4_k_m", "iq4_xs"]
N_TOKENS = 64


def source_files(folder: Path, layers: tuple[int, int]) -> tuple[Path, Path]:
    """The F32 language model and tower; written if they are missing."""
    fields = dataclasses.asdict(true_width(layers))
    model: Any = TinyModel(**fields)  # without the true model's vocabulary
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / f"{model.name}-bytes-v{models.VERSION}-language{layers[0]}-f32.gguf"
    tower = folder / f"{model.name}-bytes-v{models.VERSION}-vision{layers[1]}-f32.gguf"
    for path, writer in ((text, models._text_writer), (tower, models._tower_writer)):
        if not path.exists():
            models._write(writer(model), path, model, "F32")
    return text, tower


def quantized(source: Path, file_type: str) -> Path:
    """The same weights as ``file_type``; written if they are missing."""
    target = source.with_name(source.name.replace("-f32.gguf", f"-{file_type}.gguf"))
    if not target.exists():
        print(f"writing {target.name}", file=sys.stderr, flush=True)
        quantize_model(source, target, file_type)
    return target


def speeds(tower: Path, types: list[str], n_threads: int) -> dict[str, dict[str, float]]:
    """Processor seconds to write a tower, and the bytes that there were to convert."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for file_type in types:
            if file_type != "f32":
                start = time.process_time()
                made = quantize_model(
                    tower, f"{folder}/out.gguf", file_type, overwrite=True, n_threads=n_threads
                )
                seconds = time.process_time() - start
                found[file_type] = {"seconds": seconds, "source_bytes": made.n_source_bytes}
    return found


def measure(arguments: argparse.Namespace, text: Path, tower: Path) -> dict[str, Any]:
    """Times, memory and vectors of one pair; empty if it failed."""
    height, width = inputs.parse_size(arguments.size)
    config = {"text": str(text), "tower": str(tower), "n_threads": arguments.threads}
    request = {"op": "picture", "height": height, "width": width}
    try:
        with Worker(Spec("jmm"), config, {}) as worker:
            answers = [
                worker.ask(**request, seed=seed, vectors=True)
                for seed in range(1, arguments.repeats + 1)
            ]
            memory = worker.ask(op="memory")
            query = worker.ask(
                op="texts", n_texts=1, n_tokens=N_TOKENS, batch=1, seed=1, vectors=True
            )
    except EngineError as error:
        print(f"failed: {error}", file=sys.stderr)
        return {}
    print(f"{text.stem} {tower.stem}", file=sys.stderr, flush=True)
    return {
        "bytes": [path.stat().st_size for path in (text, tower)],
        "peak": memory["peak"],
        "repetitions": [
            {name: value for name, value in answer.items() if name != "vectors"}
            for answer in answers
        ],
        "vectors": [answer["vectors"][0] for answer in answers] + query["vectors"],
    }


def add_cosines(case: dict[str, Any], reference: NDArray[np.float64]) -> None:
    """Replaces a case's vectors by their cosines to the reference's."""
    if case:
        *pictures, text = (np.array(case.pop("vectors")) * reference).sum(axis=1).tolist()
        case["picture_cosines"], case["text_cosine"] = pictures, text


def tables(report: dict[str, Any]) -> str:
    columns = ["language", "tower", "files MB", "peak MB", "CPU s / picture", "picture cosine"]
    rows = []
    for name, case in report["cases"].items():
        cells = ["failed", *["-"] * 3]
        if case:
            numbers = [sum(case["bytes"]) / 1e6, case["peak"] / 1e6]
            cells = [f"{value:.0f}" for value in numbers]
            least = min(answer["processor"] for answer in case["repetitions"])
            cells.append(table.number(least))
            cells.append(f"{min(case['picture_cosines']):.5f}")
        rows.append([*name.split("+"), *cells])
    pairs = table.markdown(columns, rows)
    first = report["command"]["types"][0]
    rows = []
    for kind in report["command"]["types"]:
        as_text, as_tower = (
            report["cases"][pair] for pair in (f"{kind}+{first}", f"{first}+{kind}")
        )
        made = report["speeds"].get(kind)
        rows.append(
            [
                kind,
                f"{as_text['bytes'][0] / 1e6:.0f}" if as_text else "-",
                f"{as_tower['bytes'][1] / 1e6:.0f}" if as_tower else "-",
                f"{as_text['text_cosine']:.5f}" if as_text else "-",
                table.number(made["source_bytes"] / 4e6 / made["seconds"] if made else None),
            ]
        )
    columns = ["type", "language MB", "tower MB", "text cosine", "M weights / CPU s"]
    return f"{pairs}\n\n{table.markdown(columns, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--types", nargs="+", default=TYPES, help="the first is compared with")
    parser.add_argument("--layers", default="2+2", help=HELP_LAYERS)
    parser.add_argument("--size", default="448", help="of the picture, pixels")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", type=Path, default=models.default_folder())
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    parser.add_argument("--make", action="store_true", help="write the files and end")
    arguments = parser.parse_args()
    sources = source_files(arguments.models, parse_layers(arguments.layers))
    texts, towers = (
        {kind: quantized(source, kind) for kind in arguments.types} for source in sources
    )
    if arguments.make:
        return
    report = options.begin(arguments, "quantize", {"jmm": jmm_build.describe()})
    report |= {"speeds": speeds(sources[1], arguments.types, arguments.threads), "cases": {}}
    reference = None
    for text, tower in itertools.product(arguments.types, repeat=2):
        case = measure(arguments, texts[text], towers[tower])
        if reference is None:
            if not case:
                sys.exit("the first pair failed")
            reference = np.array(case["vectors"])
        add_cosines(case, reference)
        report["cases"][f"{text}+{tower}"] = case
        options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
