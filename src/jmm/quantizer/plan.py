"""Which tensors of a model get which type and shape, and what is refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jmm import _core, checkpoint
from jmm.errors import InputError
from jmm.quantizer import layout
from jmm.quantizer.layout import TYPES, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jmm.checkpoint import Header
    from jmm.quantizer.layout import Layout

FILE_TYPES = _core.file_types()
"""``{name: (number in general.file_type, name of the type that most tensors get)}``."""

_FLOATS = ("f32", "f16", "bf16")
_FFN = re.compile(r"v\.blk\.\d+\.ffn_")
_PROJECTOR = "multi_vector_projector."
_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_FFN_KEY = "clip.vision.feed_forward_length"


@dataclass(frozen=True)
class Plan:
    """A file to be written.

    Attributes:
        keys: As in `layout.Layout`.
        pairs: Per tensor what there is and what it becomes; the latter's offset means nothing.
        ffn_length: Width of the tower's feed-forward layers before and after, None if it stays.
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
    each gets. The feed-forward layers of a vision tower are widened by zeros, which changes no
    result, until their rows are whole blocks.

    Args:
        header: The file.
        found: The same file.
        file_type: One of `FILE_TYPES`.
        allow_requantize: Also convert weights that are quantized already.
        ffn_multiple: Widen the feed-forward layers of a tower to a multiple of this as well.

    Raises:
        InputError: A tensor cannot have the type, or is quantized already, or all have it.
        ModelLoadError: The model is none that jmm can load.
    """
    number, base = FILE_TYPES[file_type]
    shapes, ffn_length = {tensor.name: tensor.shape for tensor in found.tensors}, None
    if header.architecture == "clip":
        checkpoint.check_mmproj(header)
        padded, ffn_length = _padded_ffn(header, math.lcm(TYPES[base][1], ffn_multiple))
        shapes |= padded
    else:
        checkpoint.check_text(header)
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
    _check_fit(header, [new for _, new in pairs if new.name in types], file_type)
    keys = {
        **found.keys,
        "general.file_type": layout.u32("general.file_type", number),
        "general.quantization_version": layout.u32(
            "general.quantization_version", _core.QUANTIZATION_VERSION
        ),
    }
    if ffn_length and header.metadata[_FFN_KEY] == ffn_length[0]:
        keys[_FFN_KEY] = layout.u32(_FFN_KEY, ffn_length[1])
    return Plan(keys, pairs, ffn_length)


def _padded_ffn(
    header: Header, multiple: int
) -> tuple[dict[str, tuple[int, ...]], tuple[int, int] | None]:
    """New shapes of a tower's feed-forward tensors, and their old and new width.

    Zeros stay zeros on their way: each activation of these towers gives 0 for 0.
    """
    n_embd = header.metadata["clip.vision.embedding_length"]
    shapes: dict[str, tuple[int, ...]] = {}
    lengths = None
    for layer in range(header.metadata["clip.vision.block_count"]):
        up, gate, down = (f"v.blk.{layer}.ffn_{part}" for part in ("up", "gate", "down"))
        if header.shapes[f"{down}.weight"][0] == n_embd:  # named the other way round
            up, down = down, up
        n_ff = header.shapes[f"{up}.weight"][1]
        width = -(-n_ff // multiple) * multiple
        if width == n_ff:
            continue
        lengths = n_ff, width
        shapes[f"{down}.weight"] = (width, n_embd)
        for name in (up, gate):
            if f"{name}.weight" in header.shapes:
                shapes[f"{name}.weight"] = (n_embd, width)
                shapes[f"{name}.bias"] = (width,)
    return shapes, lengths


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
    if n_layer > _MAX_LAYERS:
        raise header.fail(f"it has {n_layer} layers; at most {_MAX_LAYERS} are supported")
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


def _check_fit(header: Header, tensors: list[Tensor], file_type: str) -> None:
    base = FILE_TYPES[file_type][1]
    block = TYPES[base][1]
    for tensor in tensors:
        if tensor.n_columns % block:
            # The feed-forward layers of a tower are widened to any block.
            widths = {each.n_columns for each in tensors if not _FFN.match(each.name)}
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
