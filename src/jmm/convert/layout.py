"""Which tensor of a checkpoint becomes which tensor of a GGUF file.

Names follow llama.cpp's converter (``conversion/qwenvl.py`` and ``qwen3vl.py`` of the pinned tree);
a test compares the files with that converter's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jmm.convert.config import Config, TextConfig, VisionConfig
    from jmm.convert.tensors import Tensor

Shape: TypeAlias = "tuple[int, ...]"

PROJECTOR = "multi_vector_projector"
OUTPUT = "lm_head.weight"

# The names that transformers 4 and 5, jina-embeddings-v4 and ColQwen give the same modules.
_TEXT = re.compile(
    r"(?:vlm\.)?(?:model\.)?(?:language_model\.)?(?:model\.)?(embed_tokens|layers|norm)\."
)
_VISUAL = re.compile(r"(?:vlm\.)?(?:model\.)?visual\.")
_OUTPUT = re.compile(r"(?:vlm\.)?(?:model\.|language_model\.)?lm_head\.weight")
_PROJECTOR = re.compile(
    r"(?:base_model\.model\.)?(?:multi_vector_projector|custom_text_proj|embedding_proj_layer)\b"
)
_BUFFER = re.compile(r"\.rotary_emb\.inv_freq$")

LINEAR = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_BIASED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


@dataclass(frozen=True)
class Target:
    """One tensor to write.

    Attributes:
        name: In the GGUF file.
        source: Name after `canonical`.
        shape: What the checkpoint's tensor must have, slowest axis first.
        rows: First row and one past the last, None for all.
        frame: Index of the third axis to take, None for all of it.
    """

    name: str
    source: str
    shape: Shape
    rows: tuple[int, int] | None = field(default=None, kw_only=True)
    frame: int | None = field(default=None, kw_only=True)

    @property
    def span(self) -> tuple[int, int]:
        """The rows to take."""
        return self.rows or (0, self.shape[0])

    @property
    def written(self) -> Shape:
        """Shape of what is written, slowest axis first."""
        start, stop = self.span
        rest = self.shape[1:] if self.frame is None else (self.shape[1], *self.shape[3:])
        return (stop - start, *rest)


def canonical(name: str) -> str | None:
    """A checkpoint's name in the one form that `Target.source` uses.

    Returns:
        ``layers.0.mlp.up_proj.weight``, ``visual.merger.mlp.0.bias``, ``lm_head.weight``,
        ``multi_vector_projector.weight``; None for what no layout knows.
    """
    if _OUTPUT.fullmatch(name):
        return OUTPUT
    if match := _VISUAL.match(name):
        return f"visual.{name[match.end() :]}"
    if match := _TEXT.match(name):
        return name[match.start(1) :]
    if match := _PROJECTOR.match(name):
        return f"{PROJECTOR}{name[match.end() :]}"
    return None


def resolve(folder: Path, tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Gives the tensors their canonical names and checks that all are there and none is left.

    Raises:
        ModelLoadError: A tensor is missing, unknown, there twice, or has another shape.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        key = canonical(name)
        if _BUFFER.search(name):
            continue
        if key is None:
            raise tensor.fail(f"is not known in a {config.architecture}")
        if key in found:
            raise tensor.fail(f"is there twice, also as {found[key].name}")
        found[key] = tensor
    wanted = {
        target.source: target
        for target in (*text(config, found), *vision(config.vision, config.text))
    }
    missing = [target for source, target in wanted.items() if source not in found]
    if missing:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ModelLoadError(
            f"{folder}: tensor {missing[0].source}, {list(missing[0].shape)}, is missing{more}"
        )
    for key, tensor in found.items():
        if key not in wanted:
            raise tensor.fail(f"is not known in a {config.architecture}")
        if tensor.shape != wanted[key].shape:
            raise tensor.fail(
                f"has shape {list(tensor.shape)}; config.json asks for {list(wanted[key].shape)}"
            )
    return found


def text(config: Config, found: Mapping[str, Tensor]) -> Iterator[Target]:
    """The language model's file: its own tensors, the output matrix and the projector if there."""
    yield from _decoder(config.text)
    if OUTPUT in found:
        yield Target("output.weight", OUTPUT, (config.text.vocab_size, config.text.hidden))
    if config.has_projector:
        dim = config.projector_dim
        if dim is None:
            bias = found.get(f"{PROJECTOR}.bias")
            dim = bias.shape[0] if bias else 128
        yield Target(f"{PROJECTOR}.weight", f"{PROJECTOR}.weight", (dim, config.text.hidden))
        yield Target(f"{PROJECTOR}.bias", f"{PROJECTOR}.bias", (dim,))


def linear_shapes(config: TextConfig) -> dict[str, Shape]:
    """``{module of a layer: (outputs, inputs)}``."""
    hidden, ffn, n_q, n_kv = config.hidden, config.ffn, config.n_q, config.n_kv
    return {
        "self_attn.q_proj": (n_q, hidden),
        "self_attn.k_proj": (n_kv, hidden),
        "self_attn.v_proj": (n_kv, hidden),
        "self_attn.o_proj": (hidden, n_q),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }


def _decoder(config: TextConfig) -> Iterator[Target]:
    vector = (config.hidden,)
    yield Target("token_embd.weight", "embed_tokens.weight", (config.vocab_size, config.hidden))
    for i in range(config.layers):
        ours, theirs = f"blk.{i}.", f"layers.{i}."
        yield Target(f"{ours}attn_norm.weight", f"{theirs}input_layernorm.weight", vector)
        yield Target(f"{ours}ffn_norm.weight", f"{theirs}post_attention_layernorm.weight", vector)
        for module, shape in linear_shapes(config).items():
            name = f"{ours}{LINEAR[module]}"
            yield Target(f"{name}.weight", f"{theirs}{module}.weight", shape)
            if module in _BIASED and not config.is_qwen3:
                yield Target(f"{name}.bias", f"{theirs}{module}.bias", shape[:1])
        for letter in "qk" if config.is_qwen3 else "":
            name = f"{theirs}self_attn.{letter}_norm.weight"
            yield Target(f"{ours}attn_{letter}_norm.weight", name, (config.head,))
    yield Target("output_norm.weight", "norm.weight", vector)


def vision(config: VisionConfig, language: TextConfig) -> Iterator[Target]:
    """The vision tower's file."""
    embedding = (config.hidden, 3, 2, config.patch, config.patch)
    for frame, suffix in enumerate(("", ".1")):  # one 2D kernel per frame
        yield Target(
            f"v.patch_embd.weight{suffix}",
            "visual.patch_embed.proj.weight",
            embedding,
            frame=frame,
        )
    if config.n_positions is not None:
        yield from _qwen3_vision(config, config.n_positions, language)
        return
    windowed = config.window is not None
    for i in range(config.layers):
        ours, theirs = f"v.blk.{i}.", f"visual.blocks.{i}."
        for norm in ("1", "2"):
            yield from _norm(f"{ours}ln{norm}", f"{theirs}norm{norm}", config.hidden, not windowed)
        for part, letter in enumerate("qkv"):
            for kind, rest in (("weight", (config.hidden,)), ("bias", ())):
                yield Target(
                    f"{ours}attn_{letter}.{kind}",
                    f"{theirs}attn.qkv.{kind}",
                    (3 * config.hidden, *rest),
                    rows=(part * config.hidden, (part + 1) * config.hidden),
                )
        yield from _linear(f"{ours}attn_out", f"{theirs}attn.proj", config.hidden, config.hidden)
        up, down = ("mlp.up_proj", "mlp.down_proj") if windowed else ("mlp.fc1", "mlp.fc2")
        if windowed:
            yield from _linear(
                f"{ours}ffn_gate", f"{theirs}mlp.gate_proj", config.ffn, config.hidden
            )
        yield from _linear(f"{ours}ffn_up", f"{theirs}{up}", config.ffn, config.hidden)
        yield from _linear(f"{ours}ffn_down", f"{theirs}{down}", config.hidden, config.ffn)
    yield from _norm("v.post_ln", "visual.merger.ln_q", config.hidden, not windowed)
    yield from _linear("mm.0", "visual.merger.mlp.0", config.merged, config.merged)
    yield from _linear("mm.2", "visual.merger.mlp.2", language.hidden, config.merged)


def _qwen3_vision(config: VisionConfig, n_positions: int, language: TextConfig) -> Iterator[Target]:
    hidden = config.hidden
    yield Target("v.patch_embd.bias", "visual.patch_embed.proj.bias", (hidden,))
    yield Target("v.position_embd.weight", "visual.pos_embed.weight", (n_positions, hidden))
    for i in range(config.layers):
        ours, theirs = f"v.blk.{i}.", f"visual.blocks.{i}."
        for norm in ("1", "2"):
            yield from _norm(f"{ours}ln{norm}", f"{theirs}norm{norm}", hidden, has_bias=True)
        for name, module, n_out, n_in in (
            ("attn_qkv", "attn.qkv", 3 * hidden, hidden),
            ("attn_out", "attn.proj", hidden, hidden),
            ("ffn_up", "mlp.linear_fc1", config.ffn, hidden),
            ("ffn_down", "mlp.linear_fc2", hidden, config.ffn),
        ):
            yield from _linear(f"{ours}{name}", f"{theirs}{module}", n_out, n_in)
    mergers = [("v.post_ln", "mm.0", "mm.2", "visual.merger.", hidden)]
    for k, layer in enumerate(config.deepstack):
        ours, theirs = f"v.deepstack.{layer}.", f"visual.deepstack_merger_list.{k}."
        mergers.append((f"{ours}norm", f"{ours}fc1", f"{ours}fc2", theirs, config.merged))
    for norm, first, second, theirs, width in mergers:
        yield from _norm(norm, f"{theirs}norm", width, has_bias=True)
        yield from _linear(first, f"{theirs}linear_fc1", config.merged, config.merged)
        yield from _linear(second, f"{theirs}linear_fc2", language.hidden, config.merged)


def _linear(ours: str, theirs: str, n_out: int, n_in: int) -> Iterator[Target]:
    yield Target(f"{ours}.weight", f"{theirs}.weight", (n_out, n_in))
    yield Target(f"{ours}.bias", f"{theirs}.bias", (n_out,))


def _norm(ours: str, theirs: str, width: int, has_bias: bool) -> Iterator[Target]:
    yield Target(f"{ours}.weight", f"{theirs}.weight", (width,))
    if has_bias:
        yield Target(f"{ours}.bias", f"{theirs}.bias", (width,))
