"""Pillow without its noise, and with our errors.

with pillow("photo.jpg"):
    image.load()
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import threading
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from PIL import Image, UnidentifiedImageError, _imaging

from jmm.errors import InputError, JmmError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WARNINGS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)

# Without a handler, logging prints Pillow's errors to stderr by itself.
logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def pillow(name: str) -> Iterator[None]:
    """Turns what Pillow raises on junk, which may be any exception, into our errors.

    Pillow's warnings are silenced. warnings.catch_warnings would swap the process's filters
    under other threads and forget which warnings were shown; one entry put in front and taken
    away again does neither.
    """
    filters = cast("list[Any]", warnings.filters)
    filters.insert(0, _WARNINGS)
    try:
        with _mute:
            yield
    except JmmError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{name}: no memory for the decoded picture") from error
    except Image.DecompressionBombError as error:
        raise InputError(
            f"{name}: {error} Scale the picture down, or raise PIL.Image.MAX_IMAGE_PIXELS"
        ) from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name}: no picture that Pillow knows; give a PNG, JPEG, WebP, TIFF or the like"
        ) from error
    except Exception as error:
        raise InputError(
            f"{name}: cannot be read as a picture ({type(error).__name__}: {error}); "
            "give a complete file in a format that Pillow reads"
        ) from error
    finally:
        with suppress(ValueError):
            filters.remove(_WARNINGS)


class _Mute:
    """Keeps libtiff from printing its errors to stderr while any thread is inside."""

    def __init__(self) -> None:
        self._before: int | None = None
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may read a picture, too
        self._depth = 0

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            self._set(_libtiff()[1])

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._set(self._before)

    def _set(self, handler: int | None) -> None:
        set_handler, ignore = _libtiff()
        found = set_handler(handler)
        if found == ignore:
            return
        if handler == ignore:
            self._before = found
        else:  # the host's own, set meanwhile
            set_handler(found)


@cache
def _libtiff() -> tuple[Callable[[int | None], int | None], int | None]:
    """TIFFSetErrorHandler of the libtiff that Pillow uses, and a function that does nothing.

    The latter is libtiff's own: no handler at all would be called as NULL by a thread that is
    reporting an error right now, and one in Python would wait for the GIL.
    """
    try:
        library = ctypes.PyDLL(_imaging.__file__)
        set_handler = library.TIFFSetErrorHandler
        ignore = ctypes.cast(library.TIFFGetVersion, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):
        return lambda _: None, None
    set_handler.argtypes = [ctypes.c_void_p]
    set_handler.restype = ctypes.c_void_p
    return set_handler, ignore


_mute = _Mute()
