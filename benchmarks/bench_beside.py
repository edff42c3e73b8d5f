"""Does it cost anything to share a process with another native library?

    pip install '.[beside]' torch==2.13.0
    python benchmarks/bench_beside.py [--repeats 7]

jmm embeds texts while another library multiplies matrices, each on a thread of its own: in two
processes, then in one. What is lost by that is not the cores' sharing. Columns, medians of the
calls per second in one process, as parts of those in two:
    jmm        1 where the process costs nothing
    neighbour  the same for the other library
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import jmm_build, options, table

NEIGHBOURS = {
    "numpy": """
matrix = np.random.default_rng(0).standard_normal((768, 768), np.float32)
other = lambda: matrix @ matrix
""",
    "torch": """
import torch
torch.set_num_threads(1)
matrix = torch.randn(768, 768)
other = lambda: matrix @ matrix
""",
    "onnxruntime": """
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
weight = np.random.default_rng(0).standard_normal((768, 768), np.float32)
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [768, 768]) for name in "xy"]
node = helper.make_node("MatMul", ["x", "w"], ["y"])
graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
one = onnxruntime.SessionOptions()
one.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(
    model.SerializeToString(), one, providers=["CPUExecutionProvider"]
)
other = lambda: session.run(None, {"x": weight})
""",
}

# Calls per second of what its arguments name, for as long as they say, once stdin says go.
WORK = """
import json, sys, threading, time
import numpy as np
names, seconds, setup = sys.argv[1].split(), float(sys.argv[2]), sys.argv[3]
calls = {}
if "jmm" in names:
    import jmm
    embedder = jmm.Embedder(n_threads=1)
    texts = [f"a red circle and {i} blue squares" for i in range(16)]
    calls["jmm"] = lambda: embedder.encode_document(texts)
if "neighbour" in names:
    exec(setup)
    calls["neighbour"] = other
rates = {}

def run(name):
    n, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        calls[name]()
        n += 1
    rates[name] = n / (time.perf_counter() - start)

threads = [threading.Thread(target=run, args=[name]) for name in calls]
for call in calls.values():
    call()
print("ready", flush=True)
sys.stdin.readline()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(rates))
"""


def rates(processes: list[str], neighbour: str, seconds: float) -> dict[str, float]:
    """Calls per second of each name, in processes that run at the same time."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, names, str(seconds), NEIGHBOURS[neighbour]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        for names in processes
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    found = {}
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        found |= json.loads(process.communicate()[0])
    return found


def turn(neighbour: str, seconds: float) -> dict[str, float]:
    """What one process gives, as parts of what two give."""
    apart = rates(["jmm", "neighbour"], neighbour, seconds)
    together = rates(["jmm neighbour"], neighbour, seconds)
    return {name: together[name] / apart[name] for name in apart}


def tables(report: dict[str, Any]) -> str:
    rows = [
        [name, *(table.number(table.median(turns, column)) for column in ("jmm", "neighbour"))]
        for name, turns in report["repetitions"].items()
    ]
    return table.markdown(["beside", "jmm", "neighbour"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    here = [name for name in NEIGHBOURS if find_spec(name) is not None]
    report = options.begin(arguments, "beside", {"jmm": jmm_build.describe()})
    report["repetitions"] = {name: [] for name in here}
    for _ in range(arguments.repeats):
        for name in here:
            report["repetitions"][name].append(turn(name, arguments.seconds))
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
