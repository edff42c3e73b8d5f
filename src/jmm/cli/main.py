"""Parses the command line and runs one command."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from typing import TYPE_CHECKING

from jmm.cli import browse, compare, convert, demo, embed, heatmap, index, info, quantize, search
from jmm.errors import JmmError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Words after the program's name; None for those of this process.

    Returns:
        Exit status: 0, 1 after an error, 2 after wrong usage, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="jmm", description="Pictures and text into vectors, from GGUF models."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (
        *(demo, embed, index, search, browse, info),
        *(heatmap, compare, convert, quantize),
    ):
        command.add_parser(commands).set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a file's name may be any bytes
    if sys.stderr is None:  # closed by who started the program
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    logger = logging.getLogger("jmm")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("jmm: %(message)s"))
    handler.addFilter(lambda record: record.name == "jmm")  # native lines are in the errors
    logger.addHandler(handler)
    try:
        status = arguments.run(arguments)
    except (JmmError, OSError) as error:
        print(f"jmm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("jmm: interrupted; files are whole: run the same command again", file=sys.stderr)
        return 130
    finally:
        logger.removeHandler(handler)
    return int(status)
