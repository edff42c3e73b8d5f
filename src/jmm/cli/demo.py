"""``jmm demo``: the built-in model on pictures that the package draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jmm import gallery
from jmm.cli.options import add_output_options, png, positive, says
from jmm.embedder import Embedder
from jmm.inspect import output

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "demo",
        help="search a few dozen drawn pictures with the built-in model",
        description="Draws a few dozen pictures, embeds them and some queries with the built-in "
        "model, prints the ranking, and writes a contact sheet. Needs no file and no network.",
    )
    parser.add_argument(
        "--output",
        type=png,
        default=Path("jmm-demo.png"),
        metavar="OUT.png",
        help="contact sheet; the numbers go to OUT.json; default: %(default)s",
    )
    parser.add_argument("--top", type=positive, default=3, metavar="N", help="pictures to print")
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Prints the rankings and writes the sheet."""
    output.check(arguments.output)
    entries = gallery.pictures()
    with Embedder() as embedder:
        answers = gallery.answer(embedder, entries, gallery.QUERIES)
    record = {
        "pictures": [entry.caption for entry in entries],
        "queries": [
            {
                "query": found.query,
                "right": found.right,
                "rank": found.rank,
                "order": found.order.tolist(),
                "scores": found.scores.tolist(),
            }
            for found in answers
        ],
    }
    numbers = output.save(arguments.output, gallery.sheet(entries, answers), record)
    if not says(arguments, record):
        return 0
    for found in answers:
        print(f"\n{found.query}")
        for place in found.order[: arguments.top].tolist():
            mark = "*" if place == found.right else " "
            print(f"{mark} {found.scores[place]:+.4f}  {entries[place].caption}")
    first = sum(found.rank == 1 for found in answers)
    print(f"\nThe right picture (*) is first for {first} of {len(answers)} queries")
    print(f"among {len(entries)} pictures. Contact sheet: {arguments.output}, {numbers}")
    return 0
