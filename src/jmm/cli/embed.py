"""``jmm embed``: picture files to vectors, and their scores against a query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.cli import output
from jmm.cli.options import (
    add_model_options,
    add_output_options,
    load,
    positive,
    shows_progress,
)
from jmm.errors import JmmError
from jmm.replacing import replacing

if TYPE_CHECKING:
    import argparse

    import numpy.typing as npt

    from jmm.embedder import Embedder

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "embed",
        help="embed picture files, and rank them against a query",
        description="Embeds picture files. With --query, prints them by cosine, best first.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    add_model_options(parser)
    parser.add_argument("--query", metavar="TEXT", help="rank the files against this text")
    parser.add_argument(
        "--output", type=Path, metavar="OUT.npz", help="write 'files' and 'vectors' there"
    )
    parser.add_argument("--truncate-dim", type=positive, metavar="N", help="components to keep")
    parser.add_argument(
        "--max-pixels", type=positive, metavar="N", help="greatest area of a picture"
    )
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Embeds the files; 1 if one could not be read."""
    if arguments.output is not None:
        output.check(arguments.output, *arguments.files, arguments.model, arguments.mmproj)
    with load(arguments, max_pixels=arguments.max_pixels) as embedder:
        vectors = embedder.encode_images(
            arguments.files,
            truncate_dim=arguments.truncate_dim,
            on_error="nan",
            show_progress=shows_progress(arguments),
        )
        query = None
        if arguments.query is not None:
            query = _encoded(embedder, arguments)
    readable = np.isfinite(vectors).all(axis=1)
    if arguments.output is not None:
        names = np.array([str(path) for path in arguments.files])
        with replacing(arguments.output) as file:
            np.savez(file, files=names, vectors=vectors)
    scores = np.full(len(vectors), -np.inf) if query is None else vectors @ query
    order = np.argsort(-np.where(readable, scores, -np.inf), kind="stable")[: readable.sum()]
    if arguments.json:
        output.print_json(
            arguments, _record(arguments, vectors, order, None if query is None else scores)
        )
    elif query is not None:
        for index in order:
            print(f"{scores[index]:+.4f}  {output.plain(arguments.files[index])}")
    elif arguments.output is None:
        for index in order:
            shown = " ".join(f"{value:+.4f}" for value in vectors[index, :6])
            print(f"{output.plain(arguments.files[index])}  {shown} ...")
    return 0 if readable.all() else 1


def _encoded(embedder: Embedder, arguments: argparse.Namespace) -> npt.NDArray[np.float32]:
    try:
        query: npt.NDArray[np.float32] = embedder.encode_query(
            arguments.query, truncate_dim=arguments.truncate_dim
        )
    except JmmError as error:
        error.index = None  # there is one query
        raise
    return query


def _record(
    arguments: argparse.Namespace,
    vectors: npt.NDArray[np.float32],
    order: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32] | None,
) -> dict[str, Any]:
    """The files that could be read, best first, and those that could not."""
    files = []
    for index in order.tolist():
        entry: dict[str, Any] = {"file": str(arguments.files[index])}
        if scores is not None:
            entry["score"] = float(scores[index])
        elif arguments.output is None:
            entry["vector"] = vectors[index].tolist()
        files.append(entry)
    read = set(order.tolist())
    failed = [str(path) for i, path in enumerate(arguments.files) if i not in read]
    return {"dim": vectors.shape[1], "files": files, "failed": failed}
