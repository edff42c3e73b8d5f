"""Other native libraries in the same process, imported before and after ours."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

EMBED = "from jmm import Embedder\nvector = Embedder().encode_query('a red bus')\n"
PRINT = "print('vector', vector.tobytes().hex())\n"
OTHERS = {
    # Each computes something, so that its own runtime is truly up.
    "torch": "import torch\nassert (torch.ones(64, 64) @ torch.ones(64, 64)).sum() == 64**3\n",
    "xllamacpp": "import xllamacpp\nassert 'CPU' in xllamacpp.get_system_info()\n",
}

pytestmark = pytest.mark.beside


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("vector ")]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture(scope="module")
def alone() -> str:
    return run(EMBED + PRINT)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_same_vector_beside(other: str, first: str, alone: str) -> None:
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    theirs = OTHERS[other]
    script = EMBED + theirs if first == "ours" else theirs + EMBED
    assert run(script + EMBED + PRINT) == alone
