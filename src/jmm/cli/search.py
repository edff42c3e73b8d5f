"""``jmm search``: the pages of an index that fit a query best."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.cli import output
from jmm.cli.index import opened
from jmm.cli.options import add_model_options, add_output_options, png, positive
from jmm.cli.page import add_page_option, check_page, read_page
from jmm.errors import InputError
from jmm.replacing import replacing

if TYPE_CHECKING:
    from jmm.search import Hit, Index

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_SNIPPET_CHARS = 60


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "search",
        help="search in an index",
        description="Prints the pages of an index that fit a text or a picture, best first, with "
        "their scores. Give a query or --image.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="from `jmm index`")
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("query", nargs="?", metavar="QUERY", help="a text")
    query.add_argument(
        "--image", type=Path, metavar="FILE", help="search by this picture, or page of a PDF"
    )
    add_page_option(parser)
    parser.add_argument("--top", type=positive, default=10, metavar="N", help="pages (10)")
    parser.add_argument(
        "--candidates",
        type=positive,
        default=100,
        metavar="N",
        help="pages to rank by MaxSim (100)",
    )
    parser.add_argument(
        "--open-sheet", type=png, metavar="OUT.png", help="write the pages as one picture"
    )
    add_model_options(parser, "that of the index")
    parser.add_argument("--projector", metavar="GGUF", help="multi-vector projector")
    add_output_options(parser)
    parser.set_defaults(fail=parser.error)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Searches, and prints what was found."""
    sheet = arguments.open_sheet
    check_page(arguments, arguments.image)
    if sheet is not None:
        output.check(sheet, arguments.image)
    with opened(arguments.folder, arguments) as index:
        if sheet is not None and sheet in index:
            raise InputError(f"{sheet}: this would overwrite what is indexed; give another name")
        query: Any = arguments.query
        if arguments.image is not None:
            query = read_page(arguments, arguments.image, index.embedder)
        hits = index.search(query, top=arguments.top, candidates=arguments.candidates)
        _print(hits, arguments)
        if sheet is not None:
            _write_sheet(sheet, query, hits, index, arguments)
    return 0


def _print(hits: list[Hit], arguments: argparse.Namespace) -> None:
    if arguments.json:
        output.print_json(arguments, [asdict(hit) for hit in hits])
        return
    for hit in hits:
        print(_line(hit))
    if not hits and not arguments.quiet:
        print(f"jmm: {arguments.folder} has no pages: nothing can be found", file=sys.stderr)


def _line(hit: Hit) -> str:
    where = {"picture": "", "pdf": f"  page {hit.page}", "text": f"  passage {hit.page}"}[hit.kind]
    text = " ".join(hit.text.split())
    if len(text) > _SNIPPET_CHARS:
        text = f"{text[:_SNIPPET_CHARS]}..."
    n_more = len(hit.paths) - 1
    copies = f"  (and {output.counted(n_more, 'more file')})" if n_more else ""
    line = f"{hit.score:+.4f}  {hit.path}{where}{f'  {text}' if text else ''}{copies}"
    return output.plain(line)


def _write_sheet(
    path: Path, query: Any, hits: list[Hit], index: Index, arguments: argparse.Namespace
) -> None:
    from jmm.search import contact_sheet

    with replacing(path) as file:
        contact_sheet(query, hits, index.settings).save(file, "PNG")
    if not arguments.quiet:
        print(f"jmm: written: {path}", file=sys.stderr)
