"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm import demo
from jmm.cli.output import print_json
from jmm.embedder import Embedder
from jmm.runtime import MAX_THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILT_IN = "the built-in model is for trying out: it knows drawn shapes, words and digits alone"

_MOST = 2**31 - 1
_MOST_PORT = 2**16 - 1


def positive(word: str) -> int:
    """A whole number from 1 on."""
    return _whole(word, 1, _MOST)


def n_threads(word: str) -> int:
    """A number of threads."""
    return _whole(word, 1, MAX_THREADS)


def port(word: str) -> int:
    """A TCP port; 0 for any that is free."""
    return _whole(word, 0, _MOST_PORT)


def a_path(word: str) -> str:
    """A path that is not empty."""
    if not word:
        raise argparse.ArgumentTypeError("an empty path; the current folder is `.`")
    return word


def png(word: str) -> Path:
    """The path of a PNG file to write."""
    if not word.lower().endswith(".png"):
        raise argparse.ArgumentTypeError(f"{word!r}: a name that ends in .png is needed")
    return Path(word)


def _whole(word: str, least: int, most: int) -> int:
    try:
        value = int(word)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{word!r}: a whole number from {least} to {most:,}")
    return value


def add_model_options(parser: argparse.ArgumentParser, default: str = "the built-in one") -> None:
    """Declares the options that choose and run a model.

    Args:
        parser: Of the command.
        default: Which model is taken without ``--model``.
    """
    parser.add_argument(
        "--model",
        metavar="GGUF",
        help=f"language model, or a folder from `jmm convert`; default: {default}",
    )
    parser.add_argument("--mmproj", metavar="GGUF", help="vision tower")
    parser.add_argument("--profile", metavar="NAME", help="model family; default: from the file")
    parser.add_argument("--task", metavar="NAME", help="one of the profile's tasks")
    add_threads_option(parser)


def add_threads_option(parser: argparse.ArgumentParser) -> None:
    """Declares how many threads compute."""
    parser.add_argument("--threads", type=n_threads, metavar="N", help="default: the cores allowed")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declares what is printed, and how."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="print the answer and errors alone: no progress bar, no hints, no summary",
    )


def load(arguments: argparse.Namespace, **settings: Any) -> Embedder:
    """The model that the command line names; says so where it is the built-in one."""
    embedder = Embedder(
        arguments.model,
        arguments.mmproj,
        profile=arguments.profile,
        task=arguments.task,
        n_threads=arguments.threads,
        **settings,
    )
    tell_if_built_in(embedder, arguments)
    return embedder


def tell_if_built_in(embedder: Embedder, arguments: argparse.Namespace) -> None:
    """Says what the built-in model is for, where it is the one."""
    is_built_in = embedder.info["model"] == os.fspath(demo.paths()[0])
    if is_built_in and not arguments.quiet:
        print(f"jmm: {BUILT_IN}", file=sys.stderr)


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Whether a progress bar is wanted."""
    return not arguments.quiet and sys.stderr.isatty()


def says(arguments: argparse.Namespace, record: Mapping[str, Any] | list[Any]) -> bool:
    """Whether a command prints its own words; where JSON is wanted, prints that."""
    if arguments.json:
        print_json(arguments, record)
    return not (arguments.json or arguments.quiet)
