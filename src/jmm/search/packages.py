"""The packages of the extra ``search``, imported where they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from jmm.errors import JmmError


class MissingPackageError(JmmError, ImportError):
    """A package of an extra is not installed."""


def needed(name: str) -> Any:
    """Imports a package of the extra.

    Raises:
        MissingPackageError: It is not installed.

    Example:
        >>> needed("none_such")
        Traceback (most recent call last):
        jmm.search.packages.MissingPackageError: none_such is needed: pip install 'jmm[search]'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(f"{name} is needed: pip install 'jmm[search]'") from None
