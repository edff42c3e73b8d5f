"""What LanceDB says of a damaged index or a full disk, as one error."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmm.errors import JmmError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_CHARS = 200
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class StoreError(JmmError, OSError):
    """An index is damaged, or cannot be read or written."""


def damaged(folder: Path, why: str) -> StoreError:
    """The error about an index that lacks a part."""
    return StoreError(
        f"{folder}: the index is damaged ({why}); delete the folder, and index the files again"
    )


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Turns what LanceDB and the file system raise into a `StoreError`.

    Args:
        folder: Of the index.

    Raises:
        StoreError: Something went wrong. What was finished before is kept.
    """
    try:
        yield
    except JmmError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise _failed(folder, error) from error


def _failed(folder: Path, error: Exception) -> StoreError:
    found = _OS_ERROR.search(str(error))
    number = int(found[1]) if found else getattr(error, "errno", None)
    if number in (None, errno.ENOENT):
        line = str(error).partition("\n")[0][:_MOST_CHARS]
        return StoreError(
            f"{folder}: the index cannot be used ({line}); if a part of it is missing or damaged, "
            "delete the folder, and index the files again"
        )
    return StoreError(
        f"{folder}: the index cannot be used ({os.strerror(number)}); what was finished is kept"
    )
