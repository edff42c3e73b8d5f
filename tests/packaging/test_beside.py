"""Other native libraries in one process with ours: imported before and after it, and at work."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

EMBED = "from jmm import Embedder\nvector = Embedder().encode_query('a red bus')\n"
PRINT = "print('vector', vector.tobytes().hex())\n"

# Each computes something, so that its own runtime and threads are truly up.
OTHERS = {
    "torch": """
import torch
at_torch = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
def torch_works():
    with torch.inference_mode():
        half = (at_torch.bfloat16() @ at_torch.bfloat16()).float()
        return (at_torch @ at_torch + half).numpy().tobytes()
""",
    "numpy": """
import numpy
at_numpy = numpy.random.default_rng(0).standard_normal((256, 256), numpy.float32)
def numpy_works():
    return (at_numpy @ at_numpy).tobytes()
""",
    "onnxruntime": """
import numpy, onnxruntime
from onnx import TensorProto, helper, numpy_helper
at_onnx = numpy.random.default_rng(0).standard_normal((256, 256), numpy.float32)
square = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in "xy"]
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
    "product", square[:1], square[1:], [numpy_helper.from_array(at_onnx, "w")],
)
session = onnxruntime.InferenceSession(
    helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString(),
    providers=["CPUExecutionProvider"],
)
def onnxruntime_works():
    return session.run(None, {"x": at_onnx})[0].tobytes()
""",
    "xllamacpp": """
import xllamacpp
def xllamacpp_works():
    return xllamacpp.get_system_info().encode()
assert b"CPU" in xllamacpp_works()
""",
    "llama_cpp": """
import llama_cpp
llama_cpp.llama_backend_init()
def llama_cpp_works():
    return llama_cpp.llama_print_system_info()
""",
}
NEEDED = {name: (name,) for name in OTHERS} | {"onnxruntime": ("onnxruntime", "onnx")}
# Its sdist compiles a llama.cpp of its own for minutes: tested where it is there.
NO_WHEEL = ("llama_cpp",)

AT_WORK = """
import threading
wanted = {name: globals()[f"{name}_works"]() for name in NAMES}
wrong, rounds, done = [], dict.fromkeys(NAMES, 0), threading.Event()

def work(name):
    while not done.is_set():
        if globals()[f"{name}_works"]() != wanted[name]:
            wrong.append(name)
        rounds[name] += 1

threads = [threading.Thread(target=work, args=[name]) for name in NAMES]
for thread in threads:
    thread.start()
with Embedder() as embedder:
    vectors = [embedder.encode_query("a red bus") for _ in range(3)]
    while not all(rounds.values()):
        vectors.append(embedder.encode_query("a red bus"))
done.set()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert all((one == vector).all() for one in vectors)
"""

pytestmark = pytest.mark.beside


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("vector ")]
    assert len(lines) == 1
    return lines[0]


def installed(name: str) -> bool:
    return all(importlib.util.find_spec(package) for package in NEEDED[name])


def require(name: str) -> None:
    if not installed(name):
        no_wheel = f"{name} comes without a wheel, and nobody has built it here"
        pytest.skip(no_wheel if name in NO_WHEEL else f"{name} is not installed")


@pytest.fixture(scope="module")
def alone() -> str:
    return run(EMBED + PRINT)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_same_vector_beside(other: str, first: str, alone: str) -> None:
    require(other)
    theirs = f"{OTHERS[other]}{other}_works()\n"
    script = EMBED + theirs if first == "ours" else theirs + EMBED
    assert run(script + EMBED + PRINT) == alone


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_both_at_work(other: str, first: str, alone: str) -> None:
    """Neither changes the other's bits, and neither waits for the other for ever."""
    require(other)
    script = EMBED + OTHERS[other] if first == "ours" else OTHERS[other] + EMBED
    assert run(f"{script}NAMES = [{other!r}]\n{AT_WORK}{PRINT}") == alone


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_all_at_work(place: str, alone: str) -> None:
    names = [name for name in OTHERS if installed(name)]
    if len(names) == 1:
        pytest.skip("with numpy alone it is test_both_at_work: torch is not installed")
    parts = [OTHERS[name] for name in names]
    parts.insert({"first": 0, "middle": len(parts) // 2, "last": len(parts)}[place], EMBED)
    assert run(f"{''.join(parts)}NAMES = {names!r}\n{AT_WORK}{PRINT}") == alone
