"""Which tensors of a model get which type and shape, and what is refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jmm import _core
from jmm.errors import InputError
from jmm.gguf_header import MAX_LAYERS, check_mmproj, check_text
from jmm.quantizer import layout, padding
from jmm.quantizer.layout import TYPES, Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from jmm.gguf_header import Header
    from jmm.quantizer.layout import Layout

FILE_TYPES = _core.file_types()
"""``{name: (number in general.file_type, name of the type that most tensors get)}``."""

_FLOATS = ("f32", "f16", "bf16")
_PROJECTOR = "multi_vector_projector."


@dataclass(frozen=True)
class Plan:
    """A file to be written.

    Attributes:
        keys: As in `layout.Layout`.
        pairs: Per tensor what there is and what it becomes; the latter's offset means nothing.
        ffn_length: Width of the feed-forward layers before and after, the widest of those that
            change; None if all stay.
    """

    keys: Mapping[str, bytes]
    pairs: list[tuple[Tensor, Tensor]]
    ffn_length: tuple[int, int] | None


def make_plan(
    header: Header,
    found: Layout,
    file_type: str,
    *,
    allow_requantize: bool = False,
    ffn_multiple: int = 1,
) -> Plan:
    """Decides about every tensor.

    llama.cpp chooses which tensors are converted, and for a mixture such as Q4_K_M which type
    each gets. Feed-forward layers are widened by zeros, which changes no result, until their rows
    are whole blocks (`padding`).

    Args:
        header: The file.
        found: The same file.
        file_type: One of `FILE_TYPES`.
        allow_requantize: Also convert weights that are quantized already.
        ffn_multiple: Widen the feed-forward layers to a multiple of this as well.

    Raises:
        InputError: A tensor cannot have the type, or is quantized already, or all have it.
        ModelLoadError: The model is none that jmm can load.
    """
    number, base = FILE_TYPES[file_type]
    if header.architecture == "clip":
        check_mmproj(header)
    else:
        check_text(header)
    shapes = {tensor.name: tensor.shape for tensor in found.tensors}
    layers, multiple = padding.find(header), math.lcm(TYPES[base][1], ffn_multiple)
    narrow = [layer for layer in layers if layer.width % multiple]
    for layer in narrow:
        shapes |= layer.widened(header, layout.aligned(layer.width, multiple))
    types = _choose(header, found.tensors, shapes, number)
    if base == "f32":
        types |= {tensor.name: "f32" for tensor in found.tensors if tensor.type in ("f16", "bf16")}
    pairs = [
        (tensor, replace(tensor, type=types.get(tensor.name, tensor.type), shape=shape))
        for tensor, shape in zip(found.tensors, shapes.values(), strict=True)
    ]
    if not types or all(old.type == new.type and old.shape == new.shape for old, new in pairs):
        raise InputError(f"{header.path}: there is nothing to convert to {file_type}")
    if not allow_requantize:
        _check_sources(header, (old for old, _ in pairs if old.name in types))
    widened = {f"{layer.outer}.weight" for layer in layers}
    _check_fit(header, [new for _, new in pairs if new.name in types], widened, file_type)
    keys = {
        **found.keys,
        "general.file_type": layout.u32("general.file_type", number),
        "general.quantization_version": layout.u32(
            "general.quantization_version", _core.QUANTIZATION_VERSION
        ),
    }
    if not narrow:
        return Plan(keys, pairs, None)
    keys |= padding.lengths(header, layers, multiple)
    widest = max(layer.width for layer in narrow)
    return Plan(keys, pairs, (widest, layout.aligned(widest, multiple)))


def _choose(
    header: Header, tensors: Iterable[Tensor], shapes: Mapping[str, tuple[int, ...]], number: int
) -> dict[str, str]:
    asked = [
        (tensor.name, TYPES[tensor.type][0], (*shapes[tensor.name], 1, 1, 1, 1)[:4])
        for tensor in sorted(tensors, key=_by_layer)
    ]
    types = _core.choose_types(header.architecture, _dimensions(header), number, asked)
    return {name: kind for name, kind in types.items() if not name.startswith(_PROJECTOR)}


def _by_layer(tensor: Tensor) -> tuple[int, str]:
    found = re.match(r"(?:v\.)?blk\.(\d+)\.", tensor.name)
    return int(found[1]) if found else -1, tensor.name


def _dimensions(header: Header) -> tuple[int, int, int, int]:
    prefix = "clip.vision" if header.architecture == "clip" else header.architecture

    def value(name: str, default: int) -> int:
        given: Any = header.metadata.get(f"{prefix}.{name}", default)
        if isinstance(given, list):  # one per layer
            given = given[0] if given else default
        whole = isinstance(given, int) and not isinstance(given, bool)
        return given if whole and 0 <= given < 2**31 else default

    n_layer = header.positive(f"{prefix}.block_count")
    if n_layer > MAX_LAYERS:
        raise header.fail(f"it has {n_layer} layers; at most {MAX_LAYERS} are supported")
    n_head = value("attention.head_count", 1)
    return n_layer, n_head, value("attention.head_count_kv", n_head), value("expert_count", 0)


def _check_sources(header: Header, tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        if tensor.type not in _FLOATS:
            raise InputError(
                f"{header.path}: tensor {tensor.name} is quantized already, as {tensor.type}, "
                "and each time loses more; start from the F32, BF16 or F16 file, or allow it with "
                "allow_requantize=True (--allow-requantize)"
            )


def _check_fit(
    header: Header, tensors: list[Tensor], widened: Collection[str], file_type: str
) -> None:
    """Names the types that can hold the model, whose ``widened`` tensors fit any."""
    base = FILE_TYPES[file_type][1]
    block = TYPES[base][1]
    for tensor in tensors:
        if tensor.n_columns % block:
            widths = {each.n_columns for each in tensors if each.name not in widened}
            others = [
                name
                for name, (_, kind) in FILE_TYPES.items()
                if all(width % TYPES[kind][1] == 0 for width in widths)
            ]
            raise InputError(
                f"{header.path}: {file_type} cannot hold tensor {tensor.name} of shape "
                f"{list(tensor.shape)}: its rows of {tensor.n_columns} are no multiple of {block}, "
                f"the block of {base}; {', '.join(others)} can hold the model"
            )
