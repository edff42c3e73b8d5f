"""``jmm index``: pictures, PDFs and texts into an index that ``jmm search`` searches."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.cli.embed import add_model_options

if TYPE_CHECKING:
    import argparse

    from jmm.search import Index, Report

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "index",
        help="index pictures, PDFs and texts for `jmm search`",
        description="Brings an index up to date with files and folders: what is new or has "
        "changed is embedded, what is gone is forgotten. Run it again after an interruption: it "
        "goes on where it was.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="the index")
    add_model_options(parser)
    parser.add_argument("--max-pixels", type=int, metavar="N", help="greatest area of a page")
    add_output_options(parser)
    return parser


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declares what is printed, and how."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary")


def run(arguments: argparse.Namespace) -> int:
    """Indexes the files; 1 if some have failed."""
    try:
        with opened(arguments.into, arguments, create=True) as index:
            shown = sys.stderr.isatty() and not arguments.quiet
            report = index.add(arguments.paths, show_progress=shown)
            _print(report, len(index), arguments)
    except KeyboardInterrupt:
        print("jmm: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 1 if report.failed else 0


def opened(folder: Path, arguments: argparse.Namespace, *, create: bool = False) -> Index:
    """The index, with its own model and settings but for those that are given.

    Args:
        folder: Of the index.
        arguments: Of the command line.
        create: Whether it may be a new one.
    """
    from jmm.search import Index

    given: dict[str, Any] = {
        "model": arguments.model,
        "mmproj": arguments.mmproj,
        "profile": arguments.profile,
        "task": arguments.task,
        "max_pixels": getattr(arguments, "max_pixels", None),
        "n_threads": arguments.threads,
    }
    return Index.open(folder, create=create, **given)


def _print(report: Report, n_pages: int, arguments: argparse.Namespace) -> None:
    for path, why in report.failed.items():
        print(f"jmm: {path}: {why}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({**asdict(report), "pages_in_index": n_pages}))
    elif not arguments.quiet:
        print(
            f"{report.n_files} files indexed ({report.n_pages} pages embedded), "
            f"{report.n_unchanged} unchanged, {report.n_removed} removed, "
            f"{len(report.failed)} failed; {n_pages} pages in {arguments.into}"
        )
