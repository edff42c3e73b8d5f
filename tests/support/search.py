"""Files to index, and what is in an index by LanceDB's own account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from PIL import Image

from support import gguf_writer, tiny

TOKEN_DIM = 16


def write_projector(path: Path, seed: int = 0) -> Path:
    """Writes a multi-vector projector for the built-in model."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "projector")
    for name, shape in (("weight", (TOKEN_DIM, 256)), ("bias", (TOKEN_DIM,))):
        values = rng.standard_normal(shape).astype(np.float32)
        writer.add_tensor(f"multi_vector_projector.{name}", values)
    gguf_writer.finish(writer)
    return path


def picture(seed: int) -> Image.Image:
    """A picture of 4 x 4 patches."""
    return Image.fromarray(tiny.picture(4, 4, seed=seed))


def save_picture(path: Path, seed: int) -> Path:
    """Writes `picture`."""
    picture(seed).save(path)
    return path


def save_pdf(path: Path, seeds: list[int]) -> Path:
    """Writes a PDF whose pages are `picture`, each of 56 x 56 points."""
    first, *others = map(picture, seeds)
    first.save(path, save_all=True, append_images=others)
    return path


def pages_in(folder: Path) -> list[tuple[str, int]]:
    """The pages of an index: content and number, as often as they are there."""
    table = _table(folder, "pages").to_arrow()
    return sorted(zip(table["content"].to_pylist(), table["page"].to_pylist(), strict=True))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The pages of an index with all that is known of them, in the order of `pages_in`."""
    rows = _table(folder, "pages").to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["content"], row["page"]))


def states_in(folder: Path) -> dict[str, str]:
    """The files of an index by name, and whether they are done."""
    table = _table(folder, "files").to_arrow()
    paths = (os.fsdecode(path) for path in table["path"].to_pylist())
    return {
        os.path.basename(path): state
        for path, state in zip(paths, table["state"].to_pylist(), strict=True)
    }


def fragments_in(folder: Path) -> list[int]:
    """Fragments of the tables of an index."""
    return [
        _table(folder, name).stats()["fragment_stats"]["num_fragments"]
        for name in ("files", "pages")
    ]


def _table(folder: Path, name: str) -> Any:
    import lancedb

    return lancedb.connect(str(folder)).open_table(name)
