"""``jmm info``: what a model file is and how it would be run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jmm import runtime
from jmm.cli.options import add_model_options, add_output_options, load

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser("info", help="tell about a model and this build")
    parser.add_argument("path", nargs="?", metavar="MODEL", help="the same as --model")
    add_model_options(parser)
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Loads the model and prints its `Embedder.info` and `build_info`."""
    arguments.model = arguments.path or arguments.model
    with load(arguments) as embedder:
        facts = {**embedder.info, **runtime.build_info()}
    if arguments.json:
        print(json.dumps(facts))
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        print(f"{name:{width}}  {shown}")
    return 0
