"""How long the property tests of a live engine run, and the model that they run.

``JMM_TEST_EXAMPLES=20000`` for hours in place of seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, settings

from jmm import Embedder, JmmError
from jmm.convert import convert
from support import checkpoint, jina_calls, tiny


def examples(short: int) -> settings:
    """``short`` examples in the default run; a module's one engine serves them all."""
    return settings(
        max_examples=int(os.environ.get("JMM_TEST_EXAMPLES", short)),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def jina(folder: Path) -> Path:
    """A tiny jina-embeddings-v4, converted: three tasks, token vectors, legal dimensions."""
    model = tiny.MODELS[jina_calls.MODEL]
    return convert(checkpoint.write(model, folder / "jina", checkpoint.JINA), folder / "out")


def load(folder: Path) -> Embedder:
    """The model of `jina`, with a context that an item may overflow."""
    return Embedder(folder, n_threads=2, n_ctx=600, max_pixels=28 * 28 * 64)


def outcome(call: Callable[[], Any], counted: bool = False) -> Any:
    """What it gives, or its typed error; any other exception passes.

    With ``counted`` hypothesis tells how many gave what: ``--hypothesis-show-statistics``.
    """
    try:
        result = call()
    except JmmError as error:
        result = error
    if counted:
        event(type(result).__name__ if isinstance(result, JmmError) else "vectors")
    return result
