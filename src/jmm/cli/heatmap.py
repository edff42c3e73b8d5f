"""``jmm heatmap``: which parts of a page a query matched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jmm import inspect
from jmm.cli.options import (
    add_model_options,
    add_output_options,
    load,
    png,
    positive,
    says,
)
from jmm.cli.page import add_page_option, check_page, is_pdf, read_page
from jmm.inspect import output

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "heatmap",
        help="draw which parts of a page a query matched",
        description="Draws MaxSim over a page, shared out among its tokens, for a model with "
        "token vectors. The numbers lie beside OUT.png, in OUT.json.",
    )
    parser.add_argument("path", type=Path, metavar="PAGE", help="a picture or a PDF")
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument("out", type=png, metavar="OUT.png")
    add_page_option(parser)
    add_model_options(parser)
    parser.add_argument("--projector", metavar="GGUF", help="multi-vector projector")
    parser.add_argument(
        "--max-pixels", type=positive, metavar="N", help="greatest area of the page"
    )
    parser.add_argument(
        "--values",
        choices=("contributions", "similarities"),
        default="contributions",
        help="what is drawn; default: contributions, whose sum is the score",
    )
    add_output_options(parser)
    parser.set_defaults(fail=parser.error)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Draws the map."""
    check_page(arguments, arguments.path)
    output.check(arguments.out, arguments.path)
    settings = {"projector": arguments.projector, "max_pixels": arguments.max_pixels}
    with load(arguments, **settings) as embedder:
        picture = read_page(arguments, arguments.path, embedder)
        found = inspect.heatmap(embedder, picture, arguments.query)
        record = {"model": embedder.info["model"], "page": str(arguments.path)}
        if is_pdf(arguments.path):
            record["number"] = arguments.page or 1
        record |= found.record()
    numbers = output.save(arguments.out, found.draw(arguments.values), record)
    if not says(arguments, record):
        return 0
    print(f"MaxSim {found.score:.4f}, {found.outside:+.4f} of it outside the picture")
    for token in found.tokens:
        place = "outside" if token.cell is None else "row {} column {}".format(*token.cell)
        print(f"{token.similarity:+.4f}  {place:18}  {token.text!r}")
    print(f"written: {arguments.out}, {numbers}")
    return 0
