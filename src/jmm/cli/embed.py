"""``jmm embed``: picture files to vectors, and their scores against a query."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm.embedder import Embedder

if TYPE_CHECKING:
    import argparse

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
    parser.add_argument("--truncate-dim", type=int, metavar="N", help="components to keep")
    parser.add_argument("--max-pixels", type=int, metavar="N", help="greatest area of a picture")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options that choose and run a model."""
    parser.add_argument("--model", metavar="GGUF", help="language model; default: the built-in one")
    parser.add_argument("--mmproj", metavar="GGUF", help="vision tower")
    parser.add_argument("--profile", metavar="NAME", help="model family; default: from the file")
    parser.add_argument("--task", metavar="NAME", help="one of the profile's tasks")
    parser.add_argument("--threads", type=int, metavar="N", help="default: the cores allowed")


def run(arguments: argparse.Namespace) -> int:
    """Embeds the files; 1 if one could not be read."""
    settings: dict[str, Any] = {
        "profile": arguments.profile,
        "task": arguments.task,
        "n_threads": arguments.threads,
        "max_pixels": arguments.max_pixels,
    }
    with Embedder(arguments.model, arguments.mmproj, **settings) as embedder:
        vectors = embedder.encode_images(
            arguments.files,
            truncate_dim=arguments.truncate_dim,
            on_error="nan",
            show_progress=sys.stderr.isatty(),
        )
        query = None
        if arguments.query is not None:
            query = embedder.encode_query(arguments.query, truncate_dim=arguments.truncate_dim)
    readable = np.isfinite(vectors).all(axis=1)
    if arguments.output is not None:
        names = np.array([str(path) for path in arguments.files])
        np.savez(arguments.output, files=names, vectors=vectors)
    if query is not None:
        scores = np.where(readable, vectors @ query, -np.inf)
        for index in np.argsort(-scores, kind="stable")[: readable.sum()]:
            print(f"{scores[index]:+.4f}  {arguments.files[index]}")
    elif arguments.output is None:
        for index in np.flatnonzero(readable):
            shown = " ".join(f"{value:+.4f}" for value in vectors[index, :6])
            print(f"{arguments.files[index]}  {shown} ...")
    return 0 if readable.all() else 1
