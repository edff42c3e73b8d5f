"""What does a LoRA adapter cost, and what does changing it from call to call?

    python benchmarks/bench_tasks.py [--tokens 20] [--texts 16] [--rank 32] [--layers few]

One process holds a model and two adapters of every matrix of the language model. Columns, medians
of turns, in milliseconds per call of so many texts, by the clock and of the processor:
    plain       no adapter
    adapter     one, call after call
    changing    two adapters in turn
`change` is the last less the one before: what a change of task costs.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import models
import numpy as np
from common import inputs, jmm_build, machine, options, table
from common.shape import HELP_LAYERS, parse_layers, true_width

import jmm
from support import gguf_writer

_SHAPES = {
    "attn_q": ("hidden", "hidden"),
    "attn_k": ("hidden", "keys"),
    "attn_v": ("hidden", "keys"),
    "attn_output": ("hidden", "hidden"),
    "ffn_gate": ("hidden", "ffn"),
    "ffn_up": ("hidden", "ffn"),
    "ffn_down": ("ffn", "hidden"),
}


def write_adapter(path: Path, layers: tuple[int, int], rank: int, seed: int) -> Path:
    """A random adapter for all matrices of the language model, in F16."""
    model = true_width(layers)
    sizes = {
        "hidden": model.hidden,
        "keys": model.hidden // model.heads * model.kv_heads,
        "ffn": model.ffn,
    }
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "qwen2vl")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for layer in range(model.layers):
        for name, (n_in, n_out) in _SHAPES.items():
            for half, shape in (("a", (rank, sizes[n_in])), ("b", (sizes[n_out], rank))):
                value = rng.standard_normal(shape, np.float32) / np.sqrt(shape[1])
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{half}", value.astype("f2"))
    gguf_writer.finish(writer)
    return path


def measure(
    calls: dict[str, list[Callable[[], object]]], repeats: int
) -> dict[str, list[dict[str, float]]]:
    """Seconds per call; the names take turns, and each turn makes all calls of its name."""
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, some in calls.items():
            start, busy = time.perf_counter(), time.process_time()
            for call in some:
                call()
            busy, total = time.process_time() - busy, time.perf_counter() - start
            if turn:  # the first warms up
                answers[name].append({"total": total / len(some), "processor": busy / len(some)})
    return answers


def tables(report: dict[str, Any]) -> str:
    rows = []
    for label, field in (("wall", "total"), ("processor", "processor")):
        figures = {
            name: table.median(answers, field) * 1e3
            for name, answers in report["repetitions"].items()
        }
        figures["change"] = figures["changing"] - figures["adapter"]
        rows.append([label, *(f"{value:.1f}" for value in figures.values())])
    return table.markdown(["ms per call", *figures], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--layers", default="few", help=HELP_LAYERS)
    parser.add_argument("--type", default="F16", choices=models.TYPES)
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", type=Path, default=models.default_folder())
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    layers = parse_layers(arguments.layers)
    text, _ = models.pair(arguments.models, layers, arguments.type)
    texts = inputs.texts(arguments.texts, arguments.tokens, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            task: write_adapter(Path(folder) / f"{task}.gguf", layers, arguments.rank, seed)
            for seed, task in enumerate(("one", "two"))
        }
        with (
            jmm.Embedder(text, n_threads=arguments.threads) as plain,
            jmm.Embedder(text, adapters=paths, n_threads=arguments.threads) as adapted,
        ):
            one = functools.partial(adapted.encode_query, texts, task="one")
            two = functools.partial(adapted.encode_query, texts, task="two")
            calls = {
                "plain": [functools.partial(plain.encode_query, texts)] * 4,
                "adapter": [one] * 4,
                "changing": [two, one, two, one],
            }
            report = options.begin(arguments, "tasks", {"jmm": jmm_build.describe()})
            report["repetitions"] = measure(calls, arguments.repeats)
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
