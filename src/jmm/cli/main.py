"""Parses the command line and runs one command."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from typing import TYPE_CHECKING

from jmm import runtime
from jmm.cli import (
    browse,
    compare,
    convert,
    demo,
    doctor,
    embed,
    heatmap,
    index,
    info,
    quantize,
    search,
)
from jmm.cli.output import drop_stdout, prepare_streams, print_failure
from jmm.errors import JmmError

if TYPE_CHECKING:
    from collections.abc import Sequence

# As a shell tells of a program that a closed pipe has ended (SIGPIPE).
_PIPE_CLOSED = 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Words after the program's name; None for those of this process.

    Returns:
        Exit status: 0, 1 after an error, 2 after wrong usage, 130 after Ctrl-C, 141 where who
        read the output has gone.
    """
    prepare_streams()
    try:
        return _flushed(_run(_parser().parse_args(argv)))
    except BrokenPipeError:
        drop_stdout()
        return _PIPE_CLOSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jmm", description="Pictures and text into vectors, from GGUF models."
    )
    version = f"jmm {runtime.build_info()['version']}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (
        *(demo, embed, index, search, browse, info),
        *(heatmap, compare, convert, quantize, doctor),
    ):
        command.add_parser(commands).set_defaults(run=command.run)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    logger = logging.getLogger("jmm")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("jmm: %(message)s"))
    handler.addFilter(lambda record: record.name == "jmm")  # native lines are in the errors
    logger.addHandler(handler)
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:
        raise
    except JmmError as error:
        print_failure(arguments, _with_options(str(error), arguments))
        return 1
    except OSError as error:
        print_failure(arguments, str(error))
        return 1
    except MemoryError:
        print_failure(arguments, "there is not enough memory")
        return 1
    except KeyboardInterrupt:
        print_failure(arguments, "interrupted; files are whole: run the same command again")
        return 130
    finally:
        logger.removeHandler(handler)


def _flushed(status: int) -> int:
    """The exit status, once what was printed has left."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk
        drop_stdout()
        if status == 0:
            print(f"jmm: {error}", file=sys.stderr)
        return status or 1
    return status


def _with_options(message: str, arguments: argparse.Namespace) -> str:
    """Names arguments as the command line does: ``mmproj=`` is ``--mmproj`` here."""
    names = "|".join(map(re.escape, vars(arguments)))
    return re.sub(
        rf"\b({names})=(?![\w'\"])", lambda match: f"--{match[1].replace('_', '-')}", message
    )
