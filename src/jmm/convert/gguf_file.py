"""Writes one GGUF file, a bounded piece of a tensor at a time."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import gguf
import numpy as np

from jmm.convert.foreign import foreign
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    import numpy.typing as npt

    from jmm.convert.layout import Target
    from jmm.convert.tensors import Tensor

_logger = logging.getLogger("jmm")

FileType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0"]
Change: TypeAlias = "tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]"

FILE_TYPES: dict[str, Any] = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
_ALWAYS_F32 = ("multi_vector_", "v.position_embd.")
_Q8_0_BLOCK = 32
_PIECE = 1 << 22  # elements: 16 MiB as float32
_F16_MAX = float(np.finfo(np.float16).max)
_MOST = {"F16": _F16_MAX, "Q8_0": 127 * _F16_MAX}  # a block's scale is its greatest number / 127


@dataclass(frozen=True)
class Entry:
    """One tensor to write.

    Attributes:
        name: In the file.
        shape: Slowest axis first.
        dtype: Name of its ggml type.
        source: What it is read from.
        rows: First row of the source and one past the last.
        frame: Index of the source's third axis to take, None for all of it.
        change: Two factors whose product is added, None for no change.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    source: Tensor
    rows: tuple[int, int]
    frame: int | None = None
    change: Change | None = None

    @classmethod
    def of(
        cls,
        target: Target,
        source: Tensor,
        file_type: FileType | Literal["auto"],
        change: Change | None = None,
    ) -> Entry:
        """A tensor of the layout, in the type that it gets in a file of ``file_type``."""
        shape = target.written
        dtype = _dtype(target.name, shape, _own(file_type, source))
        return cls(target.name, shape, dtype, source, target.span, target.frame, change)

    @property
    def n_bytes(self) -> int:
        """Bytes of its data, without padding."""
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[self.dtype]]
        return int(math.prod(self.shape) // block * size)

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Its data, converted.

        Raises:
            ModelLoadError: The source holds NaN, infinity, or more than the type can hold.
        """
        qtype = gguf.GGMLQuantizationType[self.dtype]
        for first, stored in self.source.pieces(*self.rows, _PIECE):
            values = self.source.widen(stored)
            if self.change is not None:
                high, low = self.change
                with np.errstate(over="ignore", invalid="ignore"):
                    values = values + high[first : first + len(values)] @ low
                if not np.isfinite(values).all():
                    raise self.source.fail("exceeds float32 once the adapter is added")
            elif self.dtype == self.source.dtype and self.frame is None:
                yield stored
                continue
            if self.frame is not None:
                values = np.ascontiguousarray(values[:, :, self.frame])
            most = _MOST.get(self.dtype, math.inf)
            if np.abs(values).max() > most:
                raise self.source.fail(f"has numbers above {most:,.0f}; bf16 or f32 holds them")
            yield gguf.quants.quantize(values, qtype)


def _dtype(name: str, shape: tuple[int, ...], file_type: FileType) -> str:
    if len(shape) == 1 or name.endswith("_norm.weight") or name.startswith(_ALWAYS_F32):
        return "F32"
    if name.startswith("v.patch_embd."):
        return "F16" if file_type == "f16" else "F32"
    if file_type == "q8_0" and shape[-1] % _Q8_0_BLOCK:
        return "F16"
    return file_type.upper()


def lora_entries(
    weight: str, pair: tuple[Tensor, Tensor], file_type: FileType | Literal["auto"]
) -> Iterator[Entry]:
    """The two tensors that change one weight."""
    for side, source in zip("ab", pair, strict=True):
        name = f"{weight}.lora_{side}"
        dtype = _dtype(name, source.shape, _own(file_type, source))
        yield Entry(name, source.shape, dtype, source, (0, source.shape[0]))


def _own(file_type: FileType | Literal["auto"], source: Tensor) -> FileType:
    return file_type_of(source) if file_type == "auto" else file_type


def file_type_of(source: Tensor) -> FileType:
    """The type that holds a checkpoint's numbers as they are."""
    types: dict[str, FileType] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
    return types[source.dtype]


def write(
    path: Path,
    architecture: str,
    kind: Literal["model", "mmproj", "adapter"],
    card: Path,
    entries: list[Entry],
    settings: Callable[[Any], None],
    advance: Callable[[int], object],
) -> None:
    """Writes a file.

    Args:
        path: The file.
        architecture: ``general.architecture``.
        kind: ``general.type``.
        card: Folder whose config.json and README.md tell name and licence.
        entries: Its tensors, in order.
        settings: Adds the keys beyond ``general.*``.
        advance: Told the bytes of each piece that is written.

    Raises:
        ModelLoadError: A tensor cannot be converted.
    """
    writer: Any = gguf.GGUFWriter(path, architecture)
    for entry in entries:
        writer.add_tensor_info(
            entry.name,
            entry.shape,
            np.dtype(np.float32),
            entry.n_bytes,
            gguf.GGMLQuantizationType[entry.dtype],
        )
    writer.add_type(kind)
    _add_card(writer, card)
    with closing(writer):
        with foreign(f"{card}: its settings cannot be written"):
            settings(writer)
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.write_header_to_file()
        with foreign(f"{card}: its settings cannot be written"):
            writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        (file,) = writer.fout
        for entry in entries:
            writer.write_padding(file, file.tell())
            for piece in entry.pieces():
                file.write(piece.data)
                advance(piece.nbytes)
        writer.write_padding(file, file.tell())


def name_of(folder: Path) -> str:
    """A folder's own name, whatever way it is given.

    Example:
        >>> name_of(Path("models/gme/../gme/."))
        'gme'
    """
    return _text(os.path.basename(os.path.abspath(folder)))


def _text(name: str) -> str:
    """A name, with U+FFFD for each byte that is no UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _add_card(writer: Any, folder: Path) -> None:
    """Name and licence, as far as README.md and config.json tell them in plain words.

    They are a description alone: what cannot be read is left out.
    """
    total, shared, expert, n_experts = writer.get_total_parameter_count()
    card = gguf.Metadata()
    try:
        with foreign(f"{folder / 'README.md'}: its head cannot be read"):
            card = gguf.Metadata.load(None, Path(os.path.abspath(folder)), None, total)
    except ModelLoadError as error:
        _logger.info("name and licence are left out: %s", error)
    for entry in fields(card):
        if not _is_plain(getattr(card, entry.name), str(entry.type)):
            setattr(card, entry.name, None)
    card.name = card.name or name_of(folder)
    if card.size_label is None and total > 0:
        card.size_label = gguf.size_label(total, shared, expert, n_experts)
    card.set_gguf_meta_model(writer)


def _is_plain(value: Any, kind: str) -> bool:
    """Whether a value of a card is what its field is declared as, and a file can hold it."""
    if value is None:
        return True
    if "dict" in kind:
        texts = [text for entry in value if isinstance(entry, dict) for text in entry.values()]
        return all(isinstance(entry, dict) for entry in value) and all(map(_is_text, texts))
    if "list" in kind:
        return isinstance(value, list) and all(map(_is_text, value))
    return _is_text(value) if "str" in kind else isinstance(value, int | float)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)
