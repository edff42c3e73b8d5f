"""One engine in a process of its own: reads one JSON request a line, answers with one line.

Started by the benchmarks, not by hand. The first line configures; then each asks for one
repetition. Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from common import process
from common.timing import Timing


def _answer(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    operation = request.pop("op")
    wants_vectors = request.pop("vectors", False)
    if operation == "memory":
        return process.memory()
    result = getattr(engine, operation)(**request)
    if not isinstance(result, Timing):
        return result
    answer = {
        name: getattr(result, name)
        for name in ("total", "vision", "language", "prepare", "processor")
        if getattr(result, name) is not None
    }
    if wants_vectors:
        answer["vectors"] = result.vectors.astype(float).tolist()
    return answer


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if engine is None:
                module = importlib.import_module(f"engines.with_{request['engine']}")
                start = time.perf_counter()
                engine = module.Engine(request)
                answer = {"load": time.perf_counter() - start, "info": engine.info()}
            else:
                answer = _answer(engine, request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
