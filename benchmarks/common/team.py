"""Starts engines as processes of their own and lets them take turns.

Each keeps its memory and its threads to itself; only one works at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# So long idle threads of the previous engine may go on spinning.
PAUSE_SECONDS = 0.05
_WORKER = Path(__file__).resolve().parents[1] / "worker.py"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class EngineError(Exception):
    """An engine cannot be had, or failed; the text is its own."""


@dataclass(frozen=True)
class Spec:
    """Which engine, with which weights, in which interpreter: ``jmm:f16@old``."""

    engine: str
    kind: str = ""
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Spec:
        name, _, label = text.partition("@")
        engine, _, kind = name.partition(":")
        return cls(engine, kind, label)

    def __str__(self) -> str:
        kind = f":{self.kind}" if self.kind else ""
        return self.engine + kind + (f"@{self.label}" if self.label else "")


class Worker:
    """One engine's process.

    Raises:
        EngineError: The engine is not available here.
    """

    def __init__(self, spec: Spec, config: dict[str, Any], interpreters: dict[str, str]) -> None:
        self.name = str(spec)
        python = interpreters.get(spec.label or spec.engine)
        if python is None and spec.label:
            raise EngineError(f"{spec}: give its interpreter by --python {spec.label}=PATH")
        threads = dict.fromkeys(_THREAD_VARIABLES, str(config["n_threads"]))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [python or sys.executable, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | threads | {"GGML_NO_BACKTRACE": "1"},
            text=True,
        )
        try:
            self.ready = self.ask(engine=spec.engine, kind=spec.kind, **config)
        except BaseException:
            self.close()
            raise

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            raise EngineError(f"{self.name}: ended with status {status}\n{self._log_tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.name}: {answer['error']}\n{self._log_tail()}".rstrip())
        return answer

    def _log_tail(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def close_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.close()


Job = tuple[Worker, dict[str, Any]]


def warm_up(jobs: list[Job]) -> tuple[list[Job], dict[str, Any]]:
    """Runs every job once.

    Returns:
        The jobs that went well, and the vectors that they gave, by the engine's name.
    """
    alive, vectors = [], {}
    for worker, request in jobs:
        try:
            vectors[worker.name] = worker.ask(**request, seed=0, vectors=True)["vectors"]
        except EngineError as error:
            print(f"failed: {error}", file=sys.stderr)
        else:
            alive.append((worker, request))
    return alive, vectors


def in_turns(jobs: list[Job], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Repeats all jobs in turns, in an order that rotates, each time with another seed.

    Returns:
        Answers by the engine's name; an engine that failed has none.
    """
    answers: dict[str, list[dict[str, Any]]] = {worker.name: [] for worker, _ in jobs}
    alive = list(jobs)
    for seed in range(1, repeats + 1):
        shift = seed % max(1, len(alive))
        for job in alive[shift:] + alive[:shift]:
            time.sleep(PAUSE_SECONDS)
            worker, request = job
            try:
                answers[worker.name].append(worker.ask(**request, seed=seed))
            except EngineError as error:
                print(f"failed: {error}", file=sys.stderr)
                answers[worker.name] = []
                alive.remove(job)
    return answers
