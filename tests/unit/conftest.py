"""Checkpoints that the tests of conversion share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support import checkpoint, tiny


@pytest.fixture(scope="session")
def jina(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of jina-embeddings-v4's layout."""
    model = tiny.MODELS["qwen25_small"]
    return checkpoint.write(model, tmp_path_factory.mktemp("jina") / "jina", checkpoint.JINA)


@pytest.fixture
def folder(jina: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(jina, tmp_path / "jina"))
