"""The exceptions that jmm raises.

Each leaf names a cause, and each also derives from the built-in exception that a
caller would expect, so that ``except ValueError`` around a bad argument works::

    try:
        embedder.encode_images(pages)
    except InputError as error:
        print(error.index, error)
"""

from __future__ import annotations


class JmmError(Exception):
    """Base of everything that jmm raises.

    Attributes:
        index: Position in the caller's input of the item at fault, None where no
            single item is.
    """

    index: int | None

    def __init__(self, message: str, *, index: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.index = index

    def __str__(self) -> str:
        return self.message if self.index is None else f"item {self.index}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message,), {"index": self.index}


class ModelLoadError(JmmError, OSError):
    """A model file is missing, unreadable, of the wrong kind, or does not fit its partner."""


class InputError(JmmError, ValueError):
    """An argument or an item is not what the call accepts."""


class ContextOverflowError(InputError):
    """An item needs more tokens than the context holds."""


class DecodeError(JmmError, RuntimeError):
    """The native library failed while computing."""


class NonFiniteError(DecodeError):
    """A result holds NaN or infinity."""


class OutOfMemoryError(JmmError, MemoryError):
    """Memory for a model, a context or a batch could not be had."""


class ForkedProcessError(JmmError, RuntimeError):
    """An engine was used in a process forked after it had been loaded."""


class MissingExtraError(JmmError, ImportError):
    """A package is missing that an optional part of jmm needs."""
