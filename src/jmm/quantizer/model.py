"""The one call of this room."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jmm import arguments, files, runtime
from jmm.errors import InputError
from jmm.gguf_header import Header
from jmm.progress import progress_bar
from jmm.quantizer import writer
from jmm.quantizer.layout import Layout, read_layout, tensors_start
from jmm.quantizer.plan import FILE_TYPES, make_plan

PathLike: TypeAlias = "str | os.PathLike[str]"

_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class QuantizedFile:
    """A file that `quantize_model` has written.

    Attributes:
        path: Where it lies.
        n_bytes: Its size.
        n_source_bytes: The size of the file that it was made of.
        tensor_types: ``{type: number of tensors}``.
        ffn_length: Width of the feed-forward layers before and after they were padded with zeros,
            of the widest that were; None if none was.
    """

    path: Path
    n_bytes: int
    n_source_bytes: int
    tensor_types: dict[str, int]
    ffn_length: tuple[int, int] | None


def file_types() -> list[str]:
    """The names that `quantize_model` takes as ``file_type``, the most exact first.

    Example:
        >>> file_types()[:4]
        ['f32', 'bf16', 'f16', 'q8_0']
    """
    return list(FILE_TYPES)


def quantize_model(
    source: PathLike,
    target: PathLike,
    file_type: str = "q8_0",
    *,
    overwrite: bool = False,
    allow_requantize: bool = False,
    n_threads: int | None = None,
    show_progress: bool | None = None,
) -> QuantizedFile:
    """Writes a model with weights of another type.

    Takes a language model or a vision tower (mmproj) of a family that jmm runs. Matrices get the
    type; norms, biases and the patch embedding stay as they are, and so does every key of the
    file but ``general.file_type`` and ``general.quantization_version``. A mixture such as
    ``q4_k_m`` gives some tensors more bits, as llama.cpp's quantizer does. Feed-forward layers
    are padded with zeros where their width is no multiple of the type's block, which changes no
    vector; the key that tells their width is set.

    The file appears under its name when it is whole and on the disk. Beside the header, each
    thread holds about 2 MB. Thread-safe; Ctrl-C stops it.

    Args:
        source: GGUF file, best with F32, BF16 or F16 weights.
        target: GGUF file to write.
        file_type: One of `file_types`.
        overwrite: Replace ``target`` if it exists.
        allow_requantize: Take a source that is quantized already.
        n_threads: Threads to convert with. None takes the cores that this process may use.
        show_progress: True draws a progress bar on stderr.

    Returns:
        What was written.

    Raises:
        InputError: An argument is not allowed, or a tensor cannot have the type.
        ModelLoadError: The source cannot be read, is no model that jmm runs, or holds a weight
            that is NaN, infinite or too great for the type.
        OutOfMemoryError: There is no memory for the pieces in work.
        OSError: The target cannot be written.

    Example:
        >>> import tempfile
        >>> from jmm import demo
        >>> _, mmproj = demo.paths()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = quantize_model(mmproj, f"{folder}/mmproj.gguf", "q8_0")
        >>> made.n_bytes < made.n_source_bytes
        True
    """
    if not isinstance(file_type, str) or file_type not in FILE_TYPES:
        raise InputError(f"file_type is {file_type!r}; allowed are {', '.join(FILE_TYPES)}")
    n_threads = arguments.count("n_threads", n_threads, runtime.MAX_THREADS)
    new = arguments.path("target", target)
    header, found = _read(source)
    old = Path(header.path)
    if os.path.exists(new) and os.path.samefile(new, old):
        raise InputError(f"{new}: this is the source itself; write to another file")
    plan = make_plan(header, found, file_type, allow_requantize=allow_requantize)
    n_bytes = sum(tensor.size for tensor in found.tensors)
    n_threads = n_threads or runtime.default_threads()
    with (
        old.open("rb", buffering=0) as reading,
        writer.draft(new, overwrite=overwrite) as writing,
        progress_bar(n_bytes, shown=bool(show_progress), unit="B") as advance,
    ):
        size = writer.write(reading, writing, plan, found.alignment, n_threads, advance)
    types = Counter(tensor.type for _, tensor in plan.pairs)
    return QuantizedFile(new, size, old.stat().st_size, dict(types), plan.ffn_length)


def _read(path: PathLike) -> tuple[Header, Layout]:
    header = files.read_header(path)
    if not header.dtypes:
        raise header.fail("it has no tensors")
    n_parts = header.metadata.get("split.count", 1)
    if n_parts != 1:
        raise header.fail(f"it is one of {n_parts} parts; merge them first")
    alignment = int(header.metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
    return header, read_layout(header.path, tensors_start(header), alignment)
