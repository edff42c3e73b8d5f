"""JSON files of a checkpoint, with errors that name the file and the key."""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_LONGEST = 200
_MOST = float(2**127)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to read; a pipe or a device, which might never end, is refused.

    Raises:
        ModelLoadError: There is none, or opening or reading it fails.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelLoadError(f"{path}: it is no file; a file is needed")
        with open(path, "rb") as file:
            yield file
    except ModelLoadError:
        raise
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelLoadError(f"{path}: the file cannot be read: {error.strerror}") from None


def read(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        ModelLoadError: The file is missing, no JSON, or no object.
    """
    try:
        with opened(path) as file:
            value = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: the file is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: it holds {type(value).__name__}; an object is needed")
    return value


def is_number(value: object) -> bool:
    """Whether it is a number that float32 holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def shown(value: object) -> str:
    """Its repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class Section:
    """One object of a JSON file.

    Attributes:
        path: The file.
        values: The object.
        prefix: Where in the file it stands, such as ``vision_config.``.
    """

    path: Path
    values: Mapping[str, Any]
    prefix: str = ""

    def fail(self, key: str, needed: str) -> ModelLoadError:
        """An error about one key."""
        found = shown(self.values[key]) if key in self.values else "missing"
        return ModelLoadError(f"{self.path}: {self.prefix}{key} is {found}; {needed}")

    def section(self, key: str) -> Section:
        """An object inside.

        Raises:
            ModelLoadError: There is none.
        """
        if not isinstance(self.values.get(key), dict):
            raise self.fail(key, "an object is needed")
        return Section(self.path, self.values[key], f"{self.prefix}{key}.")

    def only(self, key: str, needed: object, *, takes_null: bool = True) -> None:
        """Checks that a key has the one value that is supported, where it is there.

        Args:
            key: Its name.
            needed: The value.
            takes_null: Whether null counts as absent.

        Raises:
            ModelLoadError: It has another.
        """
        value = self.values.get(key)
        if value is None and (takes_null or key not in self.values):
            return
        if value != needed or isinstance(value, bool) is not isinstance(needed, bool):
            raise self.fail(key, f"{json.dumps(needed)} is supported")

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 on that fits 32 bits.

        Raises:
            ModelLoadError: It is something else, or missing without a default.
        """
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise self.fail(key, "a whole number from 1 to 2**31 - 1 is needed")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0.

        Raises:
            ModelLoadError: It is something else, or missing without a default.
        """
        value = self.values.get(key, default)
        if not is_number(value) or not value > 0:
            raise self.fail(key, "a finite number above 0 is needed")
        return float(value)

    def one_of(self, key: str, allowed: Iterable[str], value: object) -> str:
        """``value``, which was found for the key, if it is allowed.

        Raises:
            ModelLoadError: It is something else.
        """
        if not isinstance(value, str) or value not in allowed:
            raise self.fail(key, f"supported are {', '.join(allowed)}")
        return value

    def wholes(self, key: str, default: list[int] | None = None) -> list[int]:
        """A list of whole numbers from 0 on.

        Raises:
            ModelLoadError: It is something else, or missing without a default.
        """
        value = self.values.get(key, default)
        if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
            raise self.fail(key, "a list of whole numbers is needed")
        return list(value)

    def items(self, key: str) -> list[Any]:
        """A list; an empty one where there is none.

        Raises:
            ModelLoadError: It is something else.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.fail(key, "a list is needed")
        return list(value or [])

    def strings(self, key: str) -> list[str]:
        """A list of strings.

        Raises:
            ModelLoadError: It is something else.
        """
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.fail(key, "a list of strings is needed")
        return list(value)
