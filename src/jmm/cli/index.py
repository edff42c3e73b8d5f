"""``jmm index``: pictures, PDFs and texts into an index that ``jmm search`` searches."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.cli.options import (
    a_path,
    add_model_options,
    add_output_options,
    positive,
    says,
    shows_progress,
    tell_if_built_in,
)
from jmm.cli.output import counted, plain, print_failure

if TYPE_CHECKING:
    import argparse

    from jmm.search import Index, Report

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


_MOST_SUFFIXES = 10


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "index",
        help="index pictures, PDFs and texts for `jmm search`",
        description="Brings an index up to date with files and folders: what is new or has "
        "changed is embedded, what is gone is forgotten. Run it again after an interruption: it "
        "goes on where it was.",
    )
    parser.add_argument("paths", nargs="+", type=a_path, metavar="PATH")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="the index")
    add_model_options(parser, "that of the index, or the built-in one for a new index")
    parser.add_argument("--projector", metavar="GGUF", help="multi-vector projector")
    parser.add_argument("--max-pixels", type=positive, metavar="N", help="greatest area of a page")
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Indexes the files; 1 if some have failed."""
    try:
        with opened(arguments.into, arguments, create=True) as index:
            report = index.add(arguments.paths, show_progress=shows_progress(arguments))
            _print(report, len(index), arguments)
    except KeyboardInterrupt:
        print_failure(arguments, "interrupted; the same command goes on from here")
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
        "projector": getattr(arguments, "projector", None),
        "profile": arguments.profile,
        "task": arguments.task,
        "max_pixels": getattr(arguments, "max_pixels", None),
        "n_threads": arguments.threads,
    }
    index = Index.open(folder, create=create, **given)
    tell_if_built_in(index.embedder, arguments)
    return index


def _print(report: Report, n_pages: int, arguments: argparse.Namespace) -> None:
    for path, why in report.failed.items():
        print(f"jmm: {plain(path)}: {plain(why)}", file=sys.stderr)
    if says(arguments, {**asdict(report), "pages_in_index": n_pages}):
        renamed = f"{report.n_renamed:,} renamed, " if report.n_renamed else ""
        print(
            f"{counted(report.n_files, 'file')} indexed "
            f"({counted(report.n_pages, 'page')} embedded), {report.n_unchanged:,} unchanged, "
            f"{renamed}{report.n_removed:,} removed, {len(report.failed):,} failed; "
            f"{counted(n_pages, 'page')} in {arguments.into}"
        )
        if report.passed_over:
            print(_passed_over(report.passed_over))


def _passed_over(n_files: dict[str, int]) -> str:
    often = sorted(n_files, key=lambda suffix: -n_files[suffix])
    shown = [plain(suffix) or "no suffix" for suffix in often[:_MOST_SUFFIXES]]
    shown += ["..."] if len(often) > len(shown) else []
    return f"{counted(sum(n_files.values()), 'file')} passed over ({', '.join(shown)})"
