"""Pillow's own test pictures, crashers among them, from its sdist."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import PIL
import pytest

_CACHE = Path(__file__).resolve().parents[2] / ".cache"


def fetch(folder: Path) -> Path:
    """The folder of the pictures, unpacked into ``folder``; skips the test without an index."""
    stem = f"pillow-{PIL.__version__}"
    sdist = _CACHE / f"{stem}.tar.gz"
    if not sdist.exists():
        _CACHE.mkdir(exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        wanted = ["--no-binary", "pillow", f"pillow=={PIL.__version__}", "-d", str(folder)]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"the package index does not deliver {stem}.tar.gz")
        (folder / sdist.name).replace(sdist)
    with tarfile.open(sdist) as archive:
        start = f"{stem}/Tests/images/"
        members = [member for member in archive if member.name.startswith(start)]
        archive.extractall(folder, [member for member in members if member.isfile()])
    return folder / start
