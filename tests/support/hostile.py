"""GGUF headers as lists of fields, and seeded damage to them.

The layout is that of the GGUF specification, version 3. Damage of one field leaves the others
as they are, so that what it breaks is not hidden by an earlier error: a header that has grown
is padded again, and its data follow.

Example:
    >>> source = Path("tiny-text.gguf").read_bytes()  # doctest: +SKIP
    >>> damaged(source, seed=7)  # doctest: +SKIP
    (['tensor 3: ne is 0'], b'GGUF...')
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

ALIGNMENT = 32
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9
EDGES = (
    0,
    1,
    2,
    3,
    7,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63,
    2**64 - 1,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e30, float("inf"), float("-inf"), float("nan"))
STRINGS = (b"", b"\0", b"\xff\xfe", b"a" * 70, b"%s%n%d", b"../../x", b"none", b"x" * 200_000)
_ARCHITECTURES = """
bert bloom chameleon clip command-r deepseek2 dream falcon gemma gemma3 gemma-embedding gpt2
gpt-oss granitehybrid internlm2 jamba jina-bert-v2 lfm2 llada llama mamba mamba2 modern-bert
nomic-bert olmo2 phi3 plamo qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl rwkv6 starcoder
stablelm t5 t5encoder wavtokenizer-dec none
"""
# Keys that llama.cpp or libmtmd reads if they are there; {} stands for the architecture.
_KEYS = """
general.alignment general.type general.quantization_version split.no split.count
split.tensors.count tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.scores
tokenizer.ggml.token_type tokenizer.ggml.merges tokenizer.ggml.bos_token_id
tokenizer.ggml.eos_token_id tokenizer.ggml.padding_token_id tokenizer.ggml.eot_token_id
tokenizer.ggml.unknown_token_id tokenizer.ggml.mask_token_id tokenizer.ggml.add_bos_token
tokenizer.ggml.add_eos_token tokenizer.ggml.add_space_prefix tokenizer.ggml.precompiled_charsmap
tokenizer.ggml.prefix_token_id tokenizer.chat_template {}.vocab_size {}.context_length
{}.embedding_length {}.embedding_length_out {}.block_count {}.feed_forward_length
{}.leading_dense_block_count {}.expert_count {}.expert_used_count {}.expert_feed_forward_length
{}.pooling_type {}.attention.head_count {}.attention.head_count_kv {}.attention.key_length
{}.attention.value_length {}.attention.causal {}.attention.sliding_window {}.attention.clamp_kqv
{}.attention.max_alibi_bias {}.attention.scale {}.attention.layer_norm_epsilon
{}.attention.layer_norm_rms_epsilon {}.attention.group_norm_groups {}.rope.dimension_count
{}.rope.dimension_sections {}.rope.freq_base {}.rope.scaling.type {}.rope.scaling.factor
{}.rope.scaling.original_context_length {}.rope.scaling.attn_factor
{}.rope.scaling.yarn_ext_factor {}.use_parallel_residual {}.logit_scale {}.residual_scale
{}.embedding_scale {}.n_deepstack_layers {}.nextn_predict_layers {}.ssm.conv_kernel
{}.ssm.inner_size {}.ssm.state_size {}.classifier.output_labels clip.has_audio_encoder
clip.has_llava_projector clip.use_gelu clip.use_silu clip.vision.projector_type
clip.vision.image_size clip.vision.patch_size clip.vision.spatial_merge_size
clip.vision.window_size clip.vision.n_wa_pattern clip.vision.wa_layer_indexes
clip.vision.wa_pattern_mode clip.vision.is_deepstack_layers clip.vision.feature_layer
clip.vision.image_grid_pinpoints clip.vision.image_min_pixels clip.vision.image_max_pixels
clip.vision.preproc_min_tiles clip.vision.image_crop_resolution clip.vision.projector.scale_factor
clip.vision.attention.head_dim clip.vision.attention.head_count_kv clip.vision.mm_patch_merge_type
clip.minicpmv_version adapter.type adapter.lora.alpha adapter.lora.task_name
adapter.lora.prompt_prefix adapter.alora.invocation_tokens jmm.profile
"""
ARCHITECTURES, KEYS = _ARCHITECTURES.split(), _KEYS.split()

Field = tuple[str, bytes]
Entry = list[Field]


@dataclass
class File:
    """The fields of one file; ``data`` begins after the padding."""

    top: Entry
    keys: list[Entry]
    tensors: list[Entry]
    data: bytes
    did: list[str] = field(default_factory=list)

    def bytes(self) -> bytes:
        fields = [*self.top, *(f for entry in (*self.keys, *self.tensors) for f in entry)]
        head = b"".join(raw for _, raw in fields)
        return head + bytes(-len(head) % ALIGNMENT) + self.data

    def count(self) -> None:
        """Makes the two counts of entries true again."""
        self.top[2] = ("count", struct.pack("<Q", len(self.tensors)))
        self.top[3] = ("count", struct.pack("<Q", len(self.keys)))

    @property
    def architecture(self) -> str:
        return next(
            (_text(entry[-1]) for entry in self.keys if entry[1][1] == b"general.architecture"), ""
        )


def parse(source: bytes) -> File:
    """The fields of a sound file."""
    at = 0

    def take(kind: str, size: int) -> Field:
        nonlocal at
        at += size
        return kind, source[at - size : at]

    def string() -> Entry:
        length = take("count", 8)
        return [length, take("string", struct.unpack("<Q", length[1])[0])]

    def value(kind: int) -> Entry:
        if kind == STRING:
            return string()
        if kind == ARRAY:
            item, count = take("type", 4), take("count", 8)
            fields = [item, count]
            for _ in range(struct.unpack("<Q", count[1])[0]):
                fields += value(struct.unpack("<I", item[1])[0])
            return fields
        return [take(SCALARS[kind], struct.calcsize(SCALARS[kind]))]

    def key() -> Entry:
        name, kind = string(), take("type", 4)
        return [*name, kind, *value(struct.unpack("<I", kind[1])[0])]

    def tensor() -> Entry:
        name, n_dims = string(), take("n_dims", 4)
        shape = [take("ne", 8) for _ in range(struct.unpack("<I", n_dims[1])[0])]
        return [*name, n_dims, *shape, take("dtype", 4), take("offset", 8)]

    top = [take("magic", 4), take("version", 4), take("count", 8), take("count", 8)]
    n_tensors, n_keys = (struct.unpack("<Q", raw)[0] for _, raw in top[2:])
    keys = [key() for _ in range(n_keys)]
    tensors = [tensor() for _ in range(n_tensors)]
    return File(top, keys, tensors, source[at + -at % ALIGNMENT :])


def scalar(name: str, code: str, value: float) -> Entry:
    """A key with one number."""
    kind = next(kind for kind, of_kind in SCALARS.items() if of_kind == code)
    packed = struct.pack(f"<{code}", value)
    return [*_string(name.encode()), ("type", struct.pack("<I", kind)), (code, packed)]


def damaged(source: bytes, seed: object) -> tuple[list[str], bytes]:
    """One to three seeded changes of a sound file: what they are, and the new file."""
    draw = random.Random(str(seed))
    file = parse(source)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(CHANGES)(file, draw)
    raw = file.bytes()
    if draw.random() < 0.1:
        raw = _flip(raw, draw, len(raw) - len(file.data), file.did)
    if draw.random() < 0.05:
        raw = raw[: draw.randrange(len(raw))]
        file.did.append(f"cut at {len(raw)}")
    return file.did, raw


def _flip(raw: bytes, draw: random.Random, stop: int, did: list[str]) -> bytes:
    flipped = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, bit = draw.randrange(stop), draw.randrange(8)
        flipped[at] ^= 1 << bit
        did.append(f"bit {bit} of byte {at} flipped")
    return bytes(flipped)


def _name(entry: Entry) -> str:
    return _text(entry[1])


def _text(found: Field) -> str:
    return found[1][:60].decode("utf-8", "replace")


def _string(value: bytes) -> Entry:
    return [("count", struct.pack("<Q", len(value))), ("string", value)]


def _number(draw: random.Random, code: str, old: bytes) -> bytes:
    """An edge of the field's type, or a neighbour of what it was."""
    if code in "fd":
        value: float = draw.choice(FLOATS)
        if code == "f" and abs(value) == 1e30:
            value = 3e38
        return struct.pack(f"<{code}", value)
    size = struct.calcsize(code)
    was = int.from_bytes(old, "little")
    near = (was + 1, was - 1, was * 2, was // 2, was * 3, -was)
    return (draw.choice((*EDGES, *near)) % 256**size).to_bytes(size, "little")


def _entry(file: File, draw: random.Random) -> Entry:
    return draw.choice(draw.choice([group for group in (file.keys, file.tensors) if group]))


def change_field(file: File, draw: random.Random) -> None:
    """One field of one entry, whatever it is."""
    entry = draw.choice((file.top, file.top, *(_entry(file, draw) for _ in range(12))))
    at = draw.randrange(len(entry))
    kind, old = entry[at]
    if kind == "string" or kind == "magic":
        new = draw.choice((*STRINGS[:-1], old[:-1], old + b"x", old.upper(), bytes(len(old))))
        if draw.random() < 0.5:  # as long as it was, so that all others stay in place
            new = (new + bytes(len(old)))[: len(old)]
        elif kind == "string":
            entry[at - 1] = _string(new)[0]
    elif kind == "type":
        new = struct.pack("<I", draw.choice((*range(14), 99, 2**31, 2**32 - 1)))
    elif kind == "dtype":
        new = struct.pack("<I", draw.choice((*range(45), 99, 2**31, 2**32 - 1)))
    elif kind == "n_dims":
        new = struct.pack("<I", draw.choice((0, 1, 2, 3, 4, 5, 255, 2**31, 2**32 - 1)))
    else:
        new = _number(draw, {"version": "I"}.get(kind, kind if kind in "BbHhIifQqd?" else "Q"), old)
    entry[at] = (kind, new)
    name = "top" if entry is file.top else _name(entry)
    file.did.append(f"{name}: {kind} {old[:40]!r} is {new[:40]!r}")


def change_scalar(file: File, draw: random.Random) -> None:
    """The value of a number in the metadata."""
    entry = draw.choice([entry for entry in file.keys if entry[-1][0] in "BbHhIifQqd?"])
    numbers = [at for at, (kind, _) in enumerate(entry) if at > 2 and len(kind) == 1]
    at = draw.choice(numbers)
    kind, old = entry[at]
    entry[at] = (kind, _number(draw, kind, old))
    file.did.append(f"{_name(entry)}: {old!r} is {entry[at][1]!r}")


def change_shape(file: File, draw: random.Random) -> None:
    """A tensor's shape: other axes, their product kept or not."""
    entry = draw.choice(file.tensors)
    shape = [int.from_bytes(raw, "little") for kind, raw in entry if kind == "ne"]
    new = list(shape)
    way = draw.randrange(5)
    at = draw.randrange(len(shape))
    if way == 0:
        new.reverse()
    elif way == 1:
        new = [1] * draw.randrange(4) + shape
    elif way == 2:
        new[at] = draw.choice((*EDGES, shape[at] + 1, shape[at] - 1, shape[at] * 2))
    elif way == 3:
        new = [shape[0] // 2, 2, *shape[1:]]
    else:
        new = [max(1, n // 2) for n in shape]
    new = new[:4]
    entry[2:-2] = [
        ("n_dims", struct.pack("<I", len(new))),
        *(("ne", struct.pack("<Q", n % 2**64)) for n in new),
    ]
    file.did.append(f"{_name(entry)}: shape {shape} is {new}")


def change_offset(file: File, draw: random.Random) -> None:
    """Where a tensor's data lie: over another's, unaligned, beyond the end."""
    entry = draw.choice(file.tensors)
    other = int.from_bytes(draw.choice(file.tensors)[-1][1], "little")
    new = draw.choice((other, other + 1, other + 4, len(file.data), len(file.data) - 32, *EDGES))
    entry[-1] = ("offset", struct.pack("<Q", new))
    file.did.append(f"{_name(entry)}: offset is {new}")


def drop_or_repeat(file: File, draw: random.Random) -> None:
    """An entry is missing, there twice, elsewhere, or has another's name."""
    group = draw.choice([group for group in (file.keys, file.tensors) if len(group) > 1])
    entry = draw.choice(group)
    way = draw.choice(("drop", "repeat", "move", "rename"))
    if way in ("drop", "move"):
        group.remove(entry)
    if way in ("repeat", "move"):
        group.insert(draw.randrange(len(group)), deepcopy(entry))
    if way == "rename":
        entry[:2] = draw.choice(group)[:2]
    file.did.append(f"{way} {_name(entry)}")
    if draw.random() < 0.8:
        file.count()


def exchange(file: File, draw: random.Random) -> None:
    """Two keys or two tensors have each other's contents."""
    group = draw.choice([group for group in (file.keys, file.tensors) if len(group) > 1])
    one, two = draw.sample(group, 2)
    one[2:], two[2:] = two[2:], one[2:]
    file.did.append(f"contents of {_name(one)} and {_name(two)} exchanged")


def add_key(file: File, draw: random.Random) -> None:
    """A key that the readers look for, with some value of some type."""
    name = draw.choice(KEYS).format(file.architecture).encode()
    fields: Entry = []
    kind = draw.choice((0, 4, 4, 4, 5, 6, 7, 8, 9, 10, 12))
    if kind == STRING:
        fields = _string(draw.choice((*STRINGS, *(a.encode() for a in ARCHITECTURES))))
    elif kind == ARRAY:
        item = draw.choice((4, 5, 6, STRING))
        n = draw.choice((0, 1, 2, 3, 4, 64, 600, 100_000))
        fields = [("type", struct.pack("<I", item)), ("count", struct.pack("<Q", n))]
        for _ in range(n):
            fields += _string(b"x") if item == STRING else [(SCALARS[item], bytes((1, 0, 0, 0)))]
    else:
        fields = [(SCALARS[kind], _number(draw, SCALARS[kind], bytes(8)))]
    file.keys = [entry for entry in file.keys if entry[1][1] != name]
    file.keys.insert(
        draw.randrange(len(file.keys) + 1),
        [*_string(name), ("type", struct.pack("<I", kind)), *fields],
    )
    file.count()
    said = b" ".join(raw for _, raw in fields[:6])[:60]
    file.did.append(f"{name.decode()} added, type {kind}: {said!r}")


def change_architecture(file: File, draw: random.Random) -> None:
    """Another architecture, its keys renamed with it."""
    old, new = file.architecture, draw.choice(ARCHITECTURES)
    for entry in file.keys:
        name = entry[1][1]
        if name == b"general.architecture":
            entry[3:] = _string(new.encode())
        elif old and name.startswith(f"{old}.".encode()):
            entry[:2] = _string(name.replace(old.encode(), new.encode(), 1))
    file.did.append(f"architecture is {new}")


def change_array(file: File, draw: random.Random) -> None:
    """An array is shorter, longer, or repeats itself; its count is true."""
    arrays = [entry for entry in file.keys if int.from_bytes(entry[2][1], "little") == ARRAY]
    if not arrays:
        return change_field(file, draw)
    entry = draw.choice(arrays)
    width = 2 if int.from_bytes(entry[3][1], "little") == STRING else 1
    items = entry[5:]
    n = len(items) // width
    new = draw.choice((0, 1, n // 2, max(n - 1, 0), n + 1, n * 2, n + 1000))
    items = (items * (new // max(n, 1) + 1))[: new * width]
    entry[4:] = [("count", struct.pack("<Q", len(items) // width)), *items]
    file.did.append(f"{_name(entry)}: {n} items are {len(items) // width}")
    return None


def change_data(file: File, draw: random.Random) -> None:
    """Weights that are huge, NaN, or anything."""
    data = bytearray(file.data)
    start = draw.randrange(len(data))
    size = min(draw.choice((4, 256, 65536)), len(data) - start)
    new = draw.choice((b"\xff", b"\x7f", b"\0", draw.randbytes(64)))
    data[start : start + size] = (new * size)[:size]
    file.data = bytes(data)
    file.did.append(f"{size} bytes of data at {start} are {new[:4]!r}")


CHANGES: tuple[Callable[[File, random.Random], None], ...] = (
    change_field,
    change_field,
    change_field,
    change_scalar,
    change_scalar,
    change_shape,
    change_offset,
    drop_or_repeat,
    exchange,
    add_key,
    add_key,
    change_architecture,
    change_array,
    change_data,
)
