"""Runs a snippet in a process of its own, where a crash or a hang is a failed test.

Example:
    >>> run("print(Embedder(n_threads=1).dim, *words)", "dimensions")
    ['64 dimensions']
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support import sanitizer

TESTS = Path(__file__).parent

# A hang, however busy the machine; no test waits for it otherwise.
TIMEOUT_S = 90 * sanitizer.SLOWER

PRELUDE = """\
import faulthandler, gc, os, signal, sys, threading, time
faulthandler.enable()
faulthandler.register(signal.SIGUSR1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits "ignore"
import numpy as np
import jmm
from jmm import *
from jmm import _core, demo
from support import tiny
words = sys.argv[1:]
PATCHES = np.random.default_rng(0).standard_normal((44 * 44, 1176), dtype=np.float32)
GRID = [1, 44, 44]
TEXT = " ".join(f"hello world {i}" for i in range(120))

def n_tasks():
    # a joined thread may still be listed for a moment; one that lives is listed each time
    def count():
        time.sleep(0.02)
        return len(os.listdir("/proc/self/task"))
    return min(count() for _ in range(15))

def raised(call):
    try:
        call()
    except BaseException as error:
        return type(error).__name__
    return "nothing"

"""


def run(snippet: str, *words: object, exit_code: int = 0) -> list[str]:
    """Runs ``snippet`` after `PRELUDE`, and demands the exit code and a silent stderr.

    Args:
        snippet: Statements of Python.
        *words: Become the list ``words`` there.
        exit_code: What the process must return; a signal's number is negative.

    Returns:
        The lines that it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, out, err = (Path(folder) / name for name in ("snippet.py", "out", "err"))
        program.write_text(f"{PRELUDE}{snippet}")
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",
            "GGML_NO_BACKTRACE": "1",
        }
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-u", program, *map(str, words)],
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
            try:
                code: int | str = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = f"none after {TIMEOUT_S} s"
                process.send_signal(signal.SIGUSR1)  # tells on stderr where its threads are
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(2)
            finally:
                _end_group(process)
        printed, said = out.read_text(), err.read_text()
    if code != exit_code or said:
        pytest.fail(f"exit code {code}\n--- stdout\n{printed}--- stderr\n{said}", pytrace=False)
    return printed.splitlines()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and those that it has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
