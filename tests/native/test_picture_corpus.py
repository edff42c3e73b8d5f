"""Every file of Pillow's own test pictures through the built-in model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subprocess_case import run
from support import corpus

N_PARTS = 12


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.fetch(tmp_path_factory.mktemp("pillow"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(N_PARTS))
def test_pillows_own_pictures(pictures: Path, part: int) -> None:
    snippet = "import picture_corpus; picture_corpus.main(words[0], int(words[1]), int(words[2]))"
    *faults, last = run(snippet, pictures, part, N_PARTS)
    counts = json.loads(last)
    assert faults == []
    assert counts["vectors"] > 40
    assert counts["errors"] > 5
