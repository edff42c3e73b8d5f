"""Files of a checkpoint that the package gguf reads: what it raises and logs about them."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGERS = ("gguf.gguf_writer", "gguf.vocab", "metadata")  # the last is gguf.metadata's


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Has all that gguf raises inside become one error, and nothing that it says be printed.

    A checkpoint is anybody's, and gguf takes it as it should be: what it stumbles over is raised
    as whatever Python or yaml make of it.

    Args:
        what: Begins the message.

    Raises:
        ModelLoadError: Something was raised that is not for the caller of jmm.

    Example:
        >>> with foreign("README.md: its head cannot be read"):
        ...     raise KeyError("license")
        Traceback (most recent call last):
        jmm.errors.ModelLoadError: README.md: its head cannot be read: 'license'
    """
    thread = threading.get_ident()

    def of_others(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:  # writing: a full disk
            raise
        raise ModelLoadError(f"{what}: {' '.join(str(error).split())}") from None
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)
