"""The command line: ``python -m jmm`` and ``jmm``, one file per command."""

from jmm.cli.main import main

__all__ = ["main"]
