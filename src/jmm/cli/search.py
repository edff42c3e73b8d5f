"""``jmm search``: the pages of an index that fit a query best."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jmm.cli.index import opened
from jmm.cli.options import add_model_options, add_output_options

if TYPE_CHECKING:
    import argparse

    from jmm.search import Hit

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_SNIPPET_CHARS = 60


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "search",
        help="search in an index",
        description="Prints the pages of an index that fit a text or a picture, best first, with "
        "their scores. The model is that of the index.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="from `jmm index`")
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("query", nargs="?", help="a text")
    query.add_argument("--image", type=Path, metavar="FILE", help="search by this picture")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="pages (10)")
    parser.add_argument(
        "--candidates", type=int, default=100, metavar="N", help="pages to rank by MaxSim (100)"
    )
    parser.add_argument(
        "--open-sheet", type=Path, metavar="OUT.png", help="write the pages as one picture"
    )
    add_model_options(parser)
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Searches, and prints what was found."""
    query = arguments.query if arguments.image is None else arguments.image
    with opened(arguments.folder, arguments) as index:
        hits = index.search(query, top=arguments.top, candidates=arguments.candidates)
        if arguments.open_sheet is not None:
            from jmm.search import contact_sheet

            contact_sheet(query, hits, index.settings).save(arguments.open_sheet)
    if arguments.json:
        print(json.dumps([asdict(hit) for hit in hits]))
        return 0
    for hit in hits:
        print(_line(hit))
    return 0


def _line(hit: Hit) -> str:
    where = {"picture": "", "pdf": f"  page {hit.page}", "text": f"  passage {hit.page}"}[hit.kind]
    text = " ".join(hit.text.split())
    if len(text) > _SNIPPET_CHARS:
        text = f"{text[:_SNIPPET_CHARS]}..."
    copies = f"  (and {len(hit.paths) - 1} more files)" if len(hit.paths) > 1 else ""
    return f"{hit.score:+.4f}  {hit.path}{where}{f'  {text}' if text else ''}{copies}"
