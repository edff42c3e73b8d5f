"""How well do vectors find pages: the reference, F16, quantized files, single and multi-vector?

    python benchmarks/bench_quality.py SET --reference HF_FOLDER \\
        --run f16 text-f16.gguf mmproj-f16.gguf --run q8_0 text-q8_0.gguf mmproj-q8_0.gguf

SET is a folder of queries, pages and qrels as quality/collection.py describes it. A run is a label,
the files of a model (none for the built-in one) and options of its Embedder as NAME=VALUE. mteb
searches and scores; pip install 'jmm[bench]'. docs/quality.md explains the
columns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, table
from quality import collection, intervals
from quality.collection import Collection, CollectionError

import jmm

REFERENCE = "transformers"
VECTORS = ("single", "multi")
# Those that the reference has too.
SHARED_OPTIONS = ("profile", "min_pixels", "max_pixels")
LIBRARIES = ("mteb", "pytrec_eval-terrier", "datasets", "torch", "transformers", "numpy", "pillow")


def parse_run(words: list[str]) -> tuple[str, list[str], dict[str, Any]]:
    """Label, files and options of one --run."""
    label, *rest = words
    files = [word for word in rest if "=" not in word]
    options = dict(parse_option(word) for word in rest if "=" in word)
    if len(files) > 2 or rest[: len(files)] != files:
        raise ValueError(f"--run {' '.join(words)}: LABEL [TEXT [MMPROJ]] [NAME=VALUE ...]")
    return label, files, options


def parse_option(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where a value that is JSON is taken as such: numbers, true, null."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def measure(
    arguments: argparse.Namespace, pages: Collection, label: str, make: Callable[[], Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """One retriever on one set.

    Returns:
        Its rows, and the errors for which others are missing. Multi-vectors that a model has no
        projector for are no error.
    """
    from quality import task

    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    try:
        retriever = make()
    except (jmm.ModelLoadError, jmm.InputError, task.NoModel) as error:
        return [], [_left_out(label, error)]
    try:
        for vectors in arguments.vectors:
            try:
                outcome = task.evaluate(
                    pages,
                    retriever,
                    items=arguments.items,
                    multi_vector=vectors == "multi",
                    batch=arguments.batch,
                )
            except task.NoProjector as error:
                _left_out(f"{label}, {vectors}", error)
            except jmm.InputError as error:
                errors.append(_left_out(f"{label}, {vectors}", error))
            else:
                rows.append(row(label, vectors, outcome, retriever.info(), arguments.seed))
    finally:
        retriever.close()
    return rows, errors


def _left_out(what: str, error: Exception) -> str:
    line = f"left out: {what}: {type(error).__name__}: {error}"
    print(line, file=sys.stderr)
    return line


def row(label: str, vectors: str, outcome: Any, info: dict[str, Any], seed: int) -> dict[str, Any]:
    """What is kept of one retriever and one kind of vectors."""
    return {
        "model": label,
        "vectors": vectors,
        "info": info,
        "dim": outcome.dim,
        "vectors_per_page": outcome.tokens,
        "means": outcome.means,
        "intervals": {
            metric: intervals.interval(values, seed) for metric, values in outcome.per_query.items()
        },
        "per_query": {
            metric: [round(float(value), 6) for value in values]
            for metric, values in outcome.per_query.items()
        },
        "ranking": outcome.ranking,
    }


def compare(rows: list[dict[str, Any]], seed: int) -> None:
    """Adds to each row its differences to the first row of equal vectors, query by query.

    ``same_ten`` is the share of queries whose first ten pages are the same in the same order.
    """
    first: dict[str, dict[str, Any]] = {}
    for each in rows:
        base = first.setdefault(each["vectors"], each)
        if base is each:
            continue
        each["baseline"] = base["model"]
        each["differences"] = {}
        for metric, values in each["per_query"].items():
            paired = np.subtract(values, base["per_query"][metric])
            each["differences"][metric] = [
                float(paired.mean()),
                *intervals.interval(paired, seed),
            ]
        same = [each["ranking"][query] == ranking for query, ranking in base["ranking"].items()]
        each["same_ten"] = sum(same) / len(same)


def tables(report: dict[str, Any]) -> str:
    """The scores, and below them the differences to the first row of equal vectors."""
    rows = report["rows"]
    if not rows:
        return "nothing was measured"
    metrics = list(rows[0]["means"])
    scores = [
        [
            each["model"],
            each["vectors"],
            f"{each['info']['bytes'] / 1e6:.1f}",
            f"{each['vectors_per_page']:.0f} x {each['dim']}",
            *(_with_interval(each["means"][m], each["intervals"][m]) for m in metrics),
        ]
        for each in rows
    ]
    parts = [table.markdown(["model", "vectors", "MB", "per page", *metrics], scores)]
    against = [
        [
            f"{each['model']} - {each['baseline']}",
            each["vectors"],
            *(
                _with_interval(each["differences"][m][0], each["differences"][m][1:], "+")
                for m in metrics
            ),
            f"{each['same_ten']:.1%}",
        ]
        for each in rows
        if "baseline" in each
    ]
    if against:
        parts.append(table.markdown(["difference", "vectors", *metrics, "same ten"], against))
    return "\n\n".join(parts)


def _with_interval(mean: float, limits: list[float], sign: str = "") -> str:
    low, high = limits
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(arguments: argparse.Namespace, pages: Collection) -> dict[str, Any]:
    """What the JSON begins with; folders of this machine are left out."""
    made = arguments.set / "set.json"
    runs = [
        [label, *map(_nameless, files), {name: _nameless(v) for name, v in options.items()}]
        for label, files, options in map(parse_run, arguments.run)
    ]
    kept = ("items", "vectors", "text_chars", "batch", "threads", "seed")
    everyone = {name: _nameless(v) for name, v in map(parse_option, arguments.option)}
    command = {name: vars(arguments)[name] for name in kept}
    return {
        "benchmark": "quality",
        "command": command | {"option": everyone, "runs": runs},
        "machine": machine.describe(),
        "build_info": jmm.build_info(),
        "versions": versions(),
        "set": {
            "name": pages.name,
            "pages": len(pages.items(arguments.items)),
            "queries": len(pages.queries),
            "fingerprint": pages.fingerprint(arguments.items),
            "relevant": sum(score > 0 for s in pages.qrels.values() for score in s.values()),
            "made_by": json.loads(made.read_text()) if made.is_file() else None,
        },
        "bootstrap": {"resamples": intervals.N_RESAMPLES, "level": intervals.LEVEL},
    }


def _nameless(value: Any) -> Any:
    """A file's path without its folder, anything else as it is."""
    is_file = isinstance(value, str) and Path(value).is_file()
    return Path(value).name if is_file else value


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("set", type=Path, help="folder of queries, pages and qrels")
    parser.add_argument(
        "--run", nargs="+", action="append", default=[], metavar="WORD",
        help="LABEL [TEXT.gguf [MMPROJ.gguf]] [NAME=VALUE ...]; again for each model",
    )  # fmt: skip
    parser.add_argument("--reference", type=Path, help="Hugging Face folder for transformers")
    parser.add_argument("--items", choices=["images", "texts"], default="images")
    parser.add_argument("--vectors", nargs="+", choices=VECTORS, default=["single"])
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="for every run; profile, min_pixels and max_pixels for the reference too",
    )  # fmt: skip
    parser.add_argument("--text-chars", type=int, help="only so many first ones of a page's text")
    parser.add_argument("--queries", type=int, help="only so many, evenly spaced")
    parser.add_argument("--batch", type=int, default=16, help="items per call")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    parser.add_argument(
        "--before", nargs="+", type=Path, default=[], metavar="FILE.json",
        help="kept results of the same set, whose rows come first",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    return parser.parse_args(words)


def retrievers(arguments: argparse.Namespace) -> list[tuple[str, Callable[[], Any]]]:
    """Label and maker of each, the reference first."""
    everyone = dict(map(parse_option, arguments.option))
    result: list[tuple[str, Callable[[], Any]]] = []
    if arguments.reference:
        shared = {name: value for name, value in everyone.items() if name in SHARED_OPTIONS}
        settings = {"n_threads": arguments.threads} | shared
        result.append((REFERENCE, partial(_reference, arguments.reference, settings)))
    for label, files, options in map(parse_run, arguments.run):
        settings = {"n_threads": arguments.threads} | everyone | options
        result.append((label, partial(_embedder, files, settings)))
    return result


def _reference(folder: Path, settings: dict[str, Any]) -> Any:
    from quality.with_transformers import TransformersRetriever

    return TransformersRetriever(folder, **settings)


def _embedder(files: list[str], settings: dict[str, Any]) -> Any:
    from quality.with_jmm import JmmRetriever

    return JmmRetriever(files, settings)


def kept_rows(paths: list[Path], fingerprint: str) -> list[dict[str, Any]]:
    """The rows of earlier runs.

    Raises:
        CollectionError: A run was on another set.
    """
    rows = []
    for path in paths:
        kept = json.loads(path.read_text())
        if kept["set"]["fingerprint"] != fingerprint:
            raise CollectionError(f"{path}: another set, or other options of it")
        rows += kept["rows"]
    return rows


def main() -> None:
    arguments = arguments_of()
    if importlib.util.find_spec("mteb") is None:
        sys.exit("pip install 'jmm[bench]'")
    try:
        pages = collection.read(arguments.set)
        pages = pages.shortened(arguments.text_chars).thinned(arguments.queries)
        report = describe(arguments, pages)
        rows = kept_rows(arguments.before, report["set"]["fingerprint"])
    except CollectionError as error:
        sys.exit(str(error))
    report["rows"] = rows
    errors: list[str] = []
    for label, make in retrievers(arguments):
        more, wrong = measure(arguments, pages, label, make)
        rows += more
        errors += wrong
        compare(rows, arguments.seed)
        # After each, so that a broken run keeps what it has.
        if arguments.output:
            arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    compare(rows, arguments.seed)
    if not rows:
        sys.exit("nothing was measured")
    print(tables(report))
    if errors:
        sys.exit(1)


if __name__ == "__main__":
    main()
