"""Writes a planned file: piece by piece, on several threads, and under its name when whole."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from jmm import _core
from jmm.errors import InputError, JmmError, ModelLoadError, OutOfMemoryError
from jmm.quantizer.layout import TYPES, Tensor, aligned, build_header
from jmm.replacing import beside, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from jmm.quantizer.plan import Plan

# Elements at a time: milliseconds of work, so that Ctrl-C need not wait, and little memory.
PIECE = 1 << 17

# Greatest magnitudes. A quantized block is scaled by an F16 number, which is no greater than its
# greatest weight.
_LIMITS = {"f32": 3.4028234663852886e38, "bf16": 3.3895313892515355e38}
_F16_MAX = 65504.0


@dataclass(frozen=True)
class _Piece:
    """Rows of one tensor.

    Attributes:
        old: The tensor as it is.
        new: As it becomes.
        start: First row.
        n_rows: Rows of the new tensor.
        n_old_rows: Those among them that the old one has; the rest is zero.
    """

    old: Tensor
    new: Tensor
    start: int
    n_rows: int
    n_old_rows: int

    @property
    def n_bytes(self) -> int:
        """Bytes to be read."""
        return self.n_old_rows * self.old.row_size


@contextmanager
def draft(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A new file beside ``path`` that takes its name at the end, and is deleted on an error.

    Args:
        path: Its name in the end.
        overwrite: Whether it may replace a file.

    Raises:
        InputError: There is a file of this name, or no folder for it.
    """
    if not os.path.isdir(path.parent):
        raise InputError(f"{path}: there is no folder {path.parent}")
    if os.path.lexists(path) and not (overwrite and os.path.isfile(path)):
        raise _exists(path)
    part = beside(path, ".part")
    try:
        with part.open("xb", buffering=0) as file:
            yield file
            os.fsync(file.fileno())
        _rename(part, path, overwrite=overwrite)
    except OSError as error:
        if error.filename is None and not isinstance(error, JmmError):
            error.filename = os.fspath(path)
        raise
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    sync(path.parent)


def _exists(path: Path) -> InputError:
    is_file = os.path.isfile(path) and not os.path.islink(path)
    what = "pass overwrite=True (--overwrite) to replace it" if is_file else "no file"
    return InputError(f"{path}: it exists already; {what}")


def _rename(part: Path, path: Path, *, overwrite: bool) -> None:
    """Gives a file its name; another that has taken it meanwhile stays, unless it may go."""
    if not overwrite:
        try:
            os.link(part, path)
        except FileExistsError:
            raise _exists(path) from None
        except OSError:  # no hard links on this file system
            if os.path.lexists(path):
                raise _exists(path) from None
        else:
            return
    part.replace(path)


def write(
    source: IO[bytes],
    target: IO[bytes],
    plan: Plan,
    alignment: int,
    n_threads: int,
    advance: Callable[[int], object],
) -> int:
    """Writes all of a plan.

    Each thread holds the bytes of one piece before and after, and its elements as floats.

    Args:
        source: The model.
        target: An empty file.
        plan: What to write.
        alignment: Bytes of which each tensor's offset is a multiple.
        n_threads: Pieces that are converted at a time.
        advance: Called with numbers of bytes that have been read and written.

    Returns:
        Bytes written.

    Raises:
        ModelLoadError: The source is cut short, or holds a weight that its new type cannot.
        OutOfMemoryError: There is no memory for a piece or a thread.
        OSError: Reading or writing failed.
    """
    header, placed = build_header(plan.keys, [new for _, new in plan.pairs], alignment)
    size = aligned(max(tensor.offset + tensor.size for tensor in placed), alignment)
    target.truncate(size)
    _write(target, memoryview(header), 0)
    olds = [old for old, _ in plan.pairs]
    pieces = (piece for old, new in zip(olds, placed, strict=True) for piece in _pieces(old, new))
    pool = ThreadPoolExecutor(n_threads, "jmm-quantize")
    pending: deque[Future[int]] = deque()
    try:
        for piece in pieces:
            pending.append(_submit(pool, source, target, piece))
            if len(pending) > 2 * n_threads:
                advance(pending[0].result())
                pending.popleft()
        for future in pending:
            advance(future.result())
    except OutOfMemoryError:
        raise
    except MemoryError:
        raise OutOfMemoryError("no memory to convert weights; lower n_threads") from None
    finally:
        _stop(pool, pending)
    return size


def _submit(
    pool: ThreadPoolExecutor, source: IO[bytes], target: IO[bytes], piece: _Piece
) -> Future[int]:
    try:
        return pool.submit(_convert, source, target, piece)
    except RuntimeError as error:
        raise OutOfMemoryError(f"a thread cannot be started ({error}); lower n_threads") from None


def _stop(pool: ThreadPoolExecutor, pending: Iterable[Future[int]]) -> None:
    """Waits for the pieces in work, whatever signals come: they write to a file to be closed."""
    while True:
        try:
            pool.shutdown(wait=False)  # a join that a signal interrupts takes its thread for ended
            wait([future for future in pending if not future.cancel()])
        except BaseException:  # the first one is under way already
            continue
        return


def _pieces(old: Tensor, new: Tensor) -> Iterator[_Piece]:
    step = max(1, PIECE // max(1, new.n_columns))
    for start in range(0, new.n_rows, step):
        n_rows = min(step, new.n_rows - start)
        yield _Piece(old, new, start, n_rows, max(0, min(n_rows, old.n_rows - start)))


def _convert(source: IO[bytes], target: IO[bytes], piece: _Piece) -> int:
    old, new = piece.old, piece.new
    data = _read(source, piece.n_bytes, old.offset + piece.start * old.row_size)
    if (old.type, old.n_columns) != (new.type, new.n_columns):
        data = _converted(source, data, old, new)
    n_zeros = piece.n_rows - piece.n_old_rows
    if n_zeros:
        zeros = Tensor(new.name, "f32", (new.n_columns, n_zeros), 0)
        data = np.concatenate([data, _converted(source, _zeros(zeros.size), zeros, new)])
    _write(target, data.data, new.offset + piece.start * new.row_size)
    return piece.n_bytes


def _converted(
    source: IO[bytes], data: NDArray[np.uint8], old: Tensor, new: Tensor
) -> NDArray[np.uint8]:
    rows = np.empty(len(data) // old.row_size * new.row_size, np.uint8)
    limit = _LIMITS.get(new.type, _F16_MAX)
    numbers = TYPES[old.type][0], TYPES[new.type][0]
    peak = _core.convert_rows(
        data, numbers[0], old.n_columns, rows, numbers[1], new.n_columns, limit
    )
    if peak > limit:
        what = f"of magnitude {peak:g}; {new.type} holds {limit:g} at most"
        raise ModelLoadError(
            f"{source.name}: tensor {old.name} holds "
            f"{'NaN or infinity' if np.isinf(peak) else f'a weight {what}'}"
        )
    return rows


def _zeros(size: int) -> NDArray[np.uint8]:
    return np.zeros(size, np.uint8)


def _read(file: IO[bytes], size: int, offset: int) -> NDArray[np.uint8]:
    data = np.empty(size, np.uint8)
    done = 0
    while done < size:
        try:
            n_read = os.preadv(file.fileno(), [data.data[done:]], offset + done)
        except OSError as error:
            raise ModelLoadError(f"{file.name}: it cannot be read: {error.strerror}") from None
        if n_read == 0:
            raise ModelLoadError(f"{file.name}: the file became shorter while it was read")
        done += n_read
    return data


def _write(file: IO[bytes], data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file.fileno(), data[done:], offset + done)
