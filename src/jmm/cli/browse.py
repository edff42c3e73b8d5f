"""``jmm browse``: an index as a local page in the browser."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from jmm.cli.index import opened
from jmm.cli.options import add_model_options, add_output_options, port, positive
from jmm.cli.output import print_json

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PORT = 8420


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "browse",
        help="look at an index in the browser",
        description="Serves a page over an index, to this machine alone: search by text or by a "
        "dropped picture, thumbnails, heat maps. Ctrl-C ends it. The model is that of the index; "
        "--model and the options beside it are needed only where its files have moved.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="from `jmm index`")
    parser.add_argument(
        "--port", type=port, default=PORT, metavar="N", help="0 for a free one (%(default)s)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--top", type=positive, default=50, metavar="N", help="pages (50)")
    add_model_options(parser, "that of the index")
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C, which is its proper end."""
    from jmm.browse import Library, Server

    with (
        opened(arguments.folder, arguments) as index,
        Library(index, arguments.top) as library,
        Server(library, arguments.port) as server,
    ):
        try:
            _tell(server.url, library.about(), arguments)
            if arguments.open:
                threading.Thread(target=_open, args=(server.url,), daemon=True).start()
            server.serve_forever()
        except KeyboardInterrupt:
            if library.is_working and not (arguments.json or arguments.quiet):
                print("the last answer is being finished", file=sys.stderr)
        finally:
            library.close()  # so that nobody begins while the server ends
    return 0


def _tell(url: str, about: dict[str, object], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(arguments, {"url": url, **about})
    elif arguments.quiet:
        print(url, flush=True)
    else:
        print(f"{about['pages']} pages of {arguments.folder} at {url}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr)


def _open(url: str) -> None:
    if not webbrowser.open(url):
        print(f"jmm: no browser could be started; open {url}", file=sys.stderr)
