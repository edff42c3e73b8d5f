"""The picture that a command looks at: a file, or a page of a PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm.cli.options import positive
from jmm.errors import InputError

if TYPE_CHECKING:
    import argparse

    from PIL import Image

    from jmm.embedder import Embedder


def add_page_option(parser: argparse.ArgumentParser) -> None:
    """Declares which page of a PDF is meant."""
    parser.add_argument(
        "--page", type=positive, metavar="N", help="of a PDF, from 1 on; default: 1"
    )


def is_pdf(path: Path) -> bool:
    """Whether a file is a PDF by its name."""
    return path.suffix.lower() == ".pdf"


def check_page(arguments: argparse.Namespace, path: Path | None) -> None:
    """Ends the command for wrong usage where the page makes no sense."""
    if arguments.page is not None and path is None:
        arguments.fail("--page is for a PDF, and none is given")
    if arguments.page is not None and path is not None and not is_pdf(path):
        arguments.fail(f"--page is for PDFs, and {path} is none by its name")


def read_page(arguments: argparse.Namespace, path: Path, embedder: Embedder) -> Path | Image.Image:
    """What the model is given: the file, or the PDF's page as `jmm index` renders it.

    Raises:
        InputError: The PDF cannot be read, or has no such page.
        OSError: It is not there.
        MissingExtraError: pypdfium2 is not installed.
    """
    if not is_pdf(path):
        return path
    from jmm.search import page as pages

    number = arguments.page or 1
    info: dict[str, Any] = embedder.info
    settings = pages.Settings(0, info["max_pixels"])
    try:
        n_pages = pages.count(str(path), "pdf", settings)
        if number > n_pages:
            raise InputError(f"there is no page {number}; it has {n_pages}")
        return pages.picture(str(path), "pdf", number - 1, settings)
    except InputError as error:
        raise InputError(f"{path}: {error.message}") from None
