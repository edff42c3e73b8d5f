"""Prints the tables of docs/exactness.md, as this machine measures them.

python tools/measure_exactness.py golden       engine against the golden files
python tools/measure_exactness.py mistakes     how far known mistakes lie beyond the tolerances
python tools/measure_exactness.py invariance   how far sizes, threads and company move a vector
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import exactness
import invariance
from jmm import _core
from support import gguf_writer, golden, tiny, vocabulary
from support.gguf_writer import FileType
from support.sequences import cosine, relative_error, worst_row_error

Files = tuple[Path, Path]


def write(name: str, file_type: FileType, folder: Path) -> Files:
    """Writes a tiny model."""
    model, weights = tiny.MODELS[name], golden.weights(name)
    stem = folder / f"{name}-{file_type}"
    return (
        gguf_writer.write_text(model, weights, stem.with_suffix(".text.gguf"), file_type),
        gguf_writer.write_mmproj(model, weights, stem.with_suffix(".mmproj.gguf"), file_type),
    )


def row(*cells: object) -> None:
    """Prints one line of a table."""
    print("| " + " | ".join(f"{c:.1e}" if isinstance(c, float) else str(c) for c in cells) + " |")


def head(*cells: str) -> None:
    """Prints the first two lines of a table."""
    row(*cells)
    row(*["---"] * len(cells))


def measure_golden(names: Iterable[str], folder: Path) -> None:
    """Largest distances over all golden cases."""
    head("model", "weights", "KV", "ViT", "text row", "picture row", "component", "1 - cosine")
    for name in names:
        for file_type in gguf_writer.FILE_TYPES:
            files = write(name, file_type, folder)
            for f16_kv in (False, True) if file_type == "F32" else (False,):
                engine = _core.Engine(*files, n_threads=1, f16_kv=f16_kv)
                row(name, file_type, "F16" if f16_kv else "F32", *_golden_maxima(engine, name))


def _golden_maxima(engine: _core.Engine, name: str) -> list[float]:
    vit, text, picture, component, angle = [0.0], [0.0], [0.0], [0.0], [0.0]
    for case in golden.load(name).values():
        result = exactness.run(engine, case)
        if result.vit is not None:
            vit.append(relative_error(result.vit, case.vit))
        rows = picture if case.grids else text
        rows.append(worst_row_error(result.hidden[case.rows], case.hidden))
        component.append(float(np.abs(result.pooled - case.pooled).max()))
        angle.append(1 - cosine(result.pooled, case.pooled))
    return [max(values) for values in (vit, text, picture, component, angle)]


def measure_mistakes(names: Iterable[str]) -> None:
    """Smallest distance of each mistake, over the cases that can show it."""
    head("mistake", "least ViT", "least row", "least component")
    cases = [case for name in names for case in golden.load(name).values()]
    for mistake in sorted({key for case in cases for key in case.distances} - {"float32"}):
        found = [case.distances[mistake] for case in cases if mistake in case.distances]
        values = (
            [entry[value] for entry in found if entry.get(value, 0) > 0]
            for value in ("vit", "hidden", "component")
        )
        row(mistake, *(min(each) if each else "" for each in values))


def measure_invariance(names: Iterable[str], folder: Path) -> None:
    """Largest movement of a component away from one item alone, default sizes, one thread."""
    sizes = [{"n_ubatch": n} for n in invariance.N_UBATCH] + [{"n_batch": invariance.N_BATCH}]
    columns = ["={}".format(*size.values()) for size in sizes]
    names_of = [f"{next(iter(size))}{column}" for size, column in zip(sizes, columns, strict=True)]
    head("model", "weights", "threads", "company", *names_of)
    for name in names:
        for file_type in gguf_writer.FILE_TYPES:
            files = write(name, file_type, folder)
            still = invariance.alone(*files)
            for n_threads in (1, 2):
                for company in (False, True):
                    moved = [
                        invariance.moved(
                            still, *files, company=company, n_threads=n_threads, **size
                        )
                        for size in sizes
                    ]
                    row(name, file_type, n_threads, "300" if company else "none", *moved)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("golden", "mistakes", "invariance"))
    parser.add_argument("models", nargs="*", help="tiny models; default all that can be made here")
    options = parser.parse_args()
    names = options.models or [
        name
        for name, model in tiny.MODELS.items()
        if model.vocabulary != "qwen" or vocabulary.has_qwen()
    ]
    with tempfile.TemporaryDirectory() as folder:
        if options.table == "golden":
            measure_golden(names, Path(folder))
        elif options.table == "mistakes":
            measure_mistakes(names)
        else:
            measure_invariance(names, Path(folder))


if __name__ == "__main__":
    main()
