"""Every file below a folder through the built-in model: its right vector, or one of our errors.

    python tests/picture_corpus.py FOLDER [PART OF]

A vector is right if it has the bits of the array that Pillow's plain calls give
(`support.odd_pictures.expected`); with a file that Pillow cannot read, InputError must come. After
each file a good picture has the bits that it had before. Nothing else may be opened, started,
warned of or printed.
"""

from __future__ import annotations

import collections
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import jmm
from jmm.images import quiet, to_rgb
from support import odd_pictures

GOOD = np.asarray(odd_pictures.noise(60, 80))
# What Pillow alone would read with the help of a program, or of any file inside.
REFUSED = ("EPS", "IPTC")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn")

_SYSTEM = ("/proc/", "/sys/fs/cgroup/")


class Corpus:
    """The model, and what was seen."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self._embedder = jmm.Embedder(n_threads=1)
        self._good = self._embedder.encode_images(GOOD)
        self._events: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROCESSES:
            self._events.append(event)
        elif event == "open" and isinstance(arguments[0], str):
            name = arguments[0]
            # Pillow imports its plugins late; jmm asks the system for free memory
            if not name.endswith((".py", ".pyc", ".so")) and not name.startswith(_SYSTEM):
                self._events.append(name)

    def check(self, path: Path) -> None:
        """Adds what is wrong with one file to `faults`."""
        self._events.clear()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            pixels, vector = self._read(path)
        foreign = [event for event in self._events if event != str(path)]
        if foreign or warned:
            self._fault(path, f"opened or started {foreign}, warned {[str(w) for w in warned]}")
        wanted = _expected(path)
        if (pixels is None) != (wanted is None):
            self._fault(path, f"read: {pixels is not None}, by Pillow: {wanted is not None}")
        elif pixels is not None and wanted is not None:
            if pixels.shape != wanted.shape or np.abs(pixels.astype(int) - wanted).max() > 1:
                self._fault(path, "other pixels than Pillow's")
            if vector is not None and not np.array_equal(vector, self._of_array(pixels)):
                self._fault(path, "another vector than the array's")
        if not np.array_equal(self._embedder.encode_images(GOOD), self._good):
            self._fault(path, "the next good picture has another vector")
        self.counts["vectors" if vector is not None else "errors"] += 1

    def _read(self, path: Path) -> tuple[Any, Any]:
        pixels = vector = None
        try:
            pixels = np.asarray(to_rgb(path))
            vector = self._embedder.encode_images([path])[0]
        except jmm.InputError as error:
            if pixels is not None and (error.index != 0 or "aspect ratio" not in str(error)):
                self._fault(path, f"no vector: {error}")
        except Exception as error:
            self._fault(path, f"{type(error).__name__}: {error}")
        return pixels, vector

    def _of_array(self, pixels: Any) -> Any:
        return self._embedder.encode_images(pixels)

    def _fault(self, path: Path, message: str) -> None:
        self.faults.append(f"{path.name}: {message}")


def _expected(path: Path) -> Any:
    with quiet.pillow(path.name):
        data = path.read_bytes()
        try:
            if odd_pictures.format_of(io.BytesIO(data)) in REFUSED:
                return None
            return odd_pictures.expected(data)
        except Exception:
            return None


def main(folder: str, part: int = 0, of: int = 1) -> None:
    """Prints what is wrong, and the counts."""
    corpus = Corpus()
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    for path in paths[part::of]:
        corpus.check(path)
    for line in (*corpus.faults, json.dumps(corpus.counts)):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
