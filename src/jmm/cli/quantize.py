"""``jmm quantize``: a model file with weights of another type."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from jmm.cli.ending import unwound_by_signals
from jmm.cli.options import add_output_options, add_threads_option, says, shows_progress
from jmm.quantizer import file_types, quantize_model

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "quantize",
        help="write a model or a vision tower with smaller weights",
        description="Writes a language model or a vision tower with weights of another type.",
    )
    parser.add_argument("source", metavar="IN.gguf")
    parser.add_argument("target", metavar="OUT.gguf")
    parser.add_argument(
        "--type",
        required=True,
        type=str.lower,
        choices=file_types(),
        metavar="TYPE",
        help=f"type of the weights: {', '.join(file_types())}",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT.gguf if it exists")
    parser.add_argument(
        "--allow-requantize",
        action="store_true",
        help="take a file that is quantized already, and lose more",
    )
    add_threads_option(parser)
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Writes the file and tells what it holds."""
    with unwound_by_signals():
        made = quantize_model(
            arguments.source,
            arguments.target,
            arguments.type,
            overwrite=arguments.overwrite,
            allow_requantize=arguments.allow_requantize,
            n_threads=arguments.threads,
            show_progress=shows_progress(arguments),
        )
    if not says(arguments, {**asdict(made), "path": str(made.path)}):
        return 0
    types = ", ".join(f"{count} {kind}" for kind, count in sorted(made.tensor_types.items()))
    size, before = (f"{n_bytes / 1e6:,.1f} MB" for n_bytes in (made.n_bytes, made.n_source_bytes))
    print(f"{made.path}: {size}, of {before}; tensors: {types}")
    if made.ffn_length:
        before_length, length = made.ffn_length
        print(f"feed-forward layers padded with zeros from {before_length:,} to {length:,}")
    return 0
