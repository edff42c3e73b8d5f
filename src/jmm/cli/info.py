"""``jmm info``: what a model file is and how it would be run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmm import bundle, runtime
from jmm.cli.options import add_model_options, add_output_options, load
from jmm.cli.output import print_json, row

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


_LISTED = 20


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "info",
        help="tell about a model and this build",
        description="Loads a model and prints its files, its family, its prompts' tasks, its "
        "limits, how it would be run here, and what this build is made of.",
    )
    parser.add_argument("path", nargs="?", metavar="MODEL", help="the same as --model")
    add_model_options(parser)
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Loads the model and prints its `Embedder.info` and `build_info`."""
    arguments.model = arguments.path or arguments.model
    with load(arguments) as embedder:
        facts = {**embedder.info, **_reasons(arguments), **runtime.build_info()}
    if arguments.json:
        print_json(arguments, facts)
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        print(row(f"{name:{width}}  ", _shown(value)))
    return 0


def _reasons(arguments: argparse.Namespace) -> dict[str, str]:
    """Where settings come from that the folder of a converted model has given."""
    if not bundle.is_bundle(arguments.model):
        return {}
    given = bundle.open_bundle(arguments.model).arguments
    why = f"named by {bundle.MANIFEST}"
    reasons = {}
    if given["min_pixels"] is not None and given["max_pixels"] is not None:
        reasons["pixels_reason"] = why
    return reasons


def _shown(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {part}" for name, part in value.items())
    if isinstance(value, list | tuple):
        shown = ", ".join(map(str, value))
        return shown if len(value) <= _LISTED else f"{len(value)}: {value[0]} to {value[-1]}"
    return str(value)
