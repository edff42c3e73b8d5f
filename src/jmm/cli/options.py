"""Options that several commands have."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from jmm.embedder import Embedder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

BUILT_IN = "the built-in model is for trying out: it knows drawn shapes, words and digits alone"


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options that choose and run a model."""
    parser.add_argument("--model", metavar="GGUF", help="language model; default: the built-in one")
    parser.add_argument("--mmproj", metavar="GGUF", help="vision tower")
    parser.add_argument("--profile", metavar="NAME", help="model family; default: from the file")
    parser.add_argument("--task", metavar="NAME", help="one of the profile's tasks")
    parser.add_argument("--threads", type=int, metavar="N", help="default: the cores allowed")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declares what is printed, and how."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary")


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
    if arguments.model is None and not arguments.quiet:
        print(f"jmm: {BUILT_IN}", file=sys.stderr)
    return embedder


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Whether a progress bar is wanted."""
    return not arguments.quiet and sys.stderr.isatty()


def says(arguments: argparse.Namespace, record: Mapping[str, Any] | list[Any]) -> bool:
    """Whether a command prints its own words; where JSON is wanted, prints that."""
    if arguments.json:
        print(json.dumps(record, ensure_ascii=False))
    return not (arguments.json or arguments.quiet)
