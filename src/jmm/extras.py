"""Packages of optional parts, imported where they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from jmm.errors import MissingExtraError


def needed(name: str, what: str) -> Any:
    """Imports a package, or a module of one.

    Args:
        name: Of the module; pip knows the package by the same name.
        what: What the package is needed for.

    Raises:
        MissingExtraError: It is not installed.

    Example:
        >>> needed("none_such", "an index")
        Traceback (most recent call last):
        jmm.errors.MissingExtraError: an index needs none_such: pip install none_such
    """
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise missing(package, what) from None


def missing(package: str, what: str) -> MissingExtraError:
    """The error about a package that is not installed."""
    return MissingExtraError(f"{what} needs {package}: pip install {package}")
