"""Each larger allocation of the native module fails once: an error, and the process goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("needs glibc and LD_PRELOAD", allow_module_level=True)

SOURCE = Path(__file__).parent / "failing_malloc.c"

TRY_EACH = """
import ctypes, os, signal, sys
import numpy as np
from jmm import Embedder, OutOfMemoryError

which = sys.argv[1]
allocations = ctypes.CDLL(None)
pixels = np.full((56, 84, 3), 7, np.uint8)

def load():
    return Embedder(n_threads=1)

def use(embedder):
    return embedder.encode_query("a"), embedder.encode_images(pixels)

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OutOfMemoryError as error:
        return "given up" if "load it again" in str(error) else "out of memory"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

def child(n):
    signal.alarm(60)
    embedder = None if which == "load" else load()
    call = load if which == "load" else lambda: use(embedder)
    allocations.fail_allocation(n)
    first = attempt(call)
    met = allocations.count_allocations() >= n
    allocations.fail_allocation(0)
    if embedder is not None and first != "given up":
        call = lambda: use(embedder)
    else:
        call = lambda: use(load())
    return met, f"{first}, then {attempt(call)}"

use(load())
n, met = 0, True
while met:
    n += 1
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        met, outcome = child(n)
        os.write(writer, f"{met}\\n{outcome}".encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        words = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    met = words.startswith("True") or code != 0
    print(words.split("\\n", 1)[1] if code == 0 else f"{n}: exit code {code}")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("failing") / "failing_malloc.so"
    command = [compiler, "-Wall", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "GGML_NO_BACKTRACE": "1"}


@pytest.mark.parametrize("which", ["load", "use"])
def test_one_after_the_other(which: str, environment: Mapping[str, str]) -> None:
    """Guards patch 0039."""
    done = subprocess.run(
        [sys.executable, "-c", TRY_EACH, which],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    outcomes = done.stdout.splitlines()
    assert len(outcomes) > 50, "too few allocations to prove anything"
    assert outcomes[-1] == "nothing, then nothing"
    assert set(outcomes) <= {
        "nothing, then nothing",  # also a failed one that has another way
        "out of memory, then nothing",
        "given up, then nothing",
    }
    assert outcomes.count("out of memory, then nothing") > 30
    assert done.stderr == ""
