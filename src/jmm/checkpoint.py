"""What a GGUF file's header promises, checked before C code relies on it.

llama.cpp asserts, and so ends the process, on some headers that a damaged or mismatched file
can carry: a key of another type, a tensor of another shape, data cut off at the end.
Everything it would assert on for the models that jmm serves is refused here by name.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

Shape: TypeAlias = "tuple[int, ...]"

PROJECTORS = {
    "qwen2vl_merger": "Qwen2-VL",
    "qwen2.5vl_merger": "Qwen2.5-VL",
    "qwen3vl_merger": "Qwen3-VL",
}
_LANGUAGE_MODELS = {
    "qwen2vl_merger": "qwen2vl",
    "qwen2.5vl_merger": "qwen2vl",
    "qwen3vl_merger": "qwen3vl",
}
# Towers that take tiles of one size.
TILE_PROJECTORS = {
    "gemma3": "Gemma 3",
    "idefics3": "SmolVLM and Idefics3",
    "mlp": "LLaVA",
    "internvl": "InternVL",
    "gemma4v": "EmbeddingGemma 2",
}
# The tower of Gemma 4 takes one tile of any size; here it belongs to one language model.
_GEMMA4_LANGUAGE_MODEL = "gemma-embedding2"
_GEMMA4_TOKENS = 280
_GEMMA4_MAX_TOKENS = 1120
_CLAMPS = ("input_min", "input_max", "output_min", "output_max")
# A tile's rows pass in one forward where they see each other.
_MAX_TILE_ROWS = 1024
_MAX_TILE = 8192
_MAX_TILES = 64

_MMPROJ_REQUIRED = (
    "clip.vision.projection_dim",
    "clip.vision.image_size",
    "clip.vision.patch_size",
    "clip.vision.embedding_length",
    "clip.vision.feed_forward_length",
    "clip.vision.block_count",
    "clip.vision.attention.head_count",
    "clip.vision.attention.layer_norm_epsilon",
    "clip.vision.image_mean",
    "clip.vision.image_std",
)
MERGE_SIZE = 2
_MMPROJ_OPTIONAL = (
    "clip.vision.spatial_merge_size",
    "clip.vision.window_size",
    "clip.vision.image_min_pixels",
    "clip.vision.image_max_pixels",
)
_PROJECTOR_TYPE = ("clip.projector_type", "clip.vision.projector_type")
PROJECTOR_WEIGHT = "multi_vector_projector.weight"
_EMBEDDINGS = "token_embd.weight"
_CHANNELS = 3
_ENCODER_VOCABULARIES = ("bert", "t5")
_ENCODERS = ("bert",)
# Their last matrix gives rows of another width than the layers have.
_PROJECTED = ("gemma-embedding2",)
# Whole numbers from 1 on that llama.cpp divides by, or makes shapes of, without looking.
_POSITIVE = {
    "mamba": ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"),
    "lfm2": ("shortconv.l_cache",),
}
_NO_WEIGHTS = frozenset(("i8", "i16", "i32", "i64", "f64"))
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_NOT_IN_TILE_TOWERS = ("v.norm_embd.weight", "v.patch_embd.weight.1", "mm.1.weight", "mm.3.weight")
_NOT_IN_QWEN = ("v.patch_embd.bias", "v.class_embd")
_WITHOUT_HEADS = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
_MAX_SLIDING_WINDOW = 2**22  # times 256 sequences, llama.cpp's product still fits in 32 bits
_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_MAX_TOWER_LAYERS = 48  # more would not fit in libmtmd's graph
_DEFAULT_WINDOW = 112
_SAMPLE_BYTES = 64
# The architecture is in the names of the other keys.
_DESCRIPTIONS = ("general.", "quantize.", "split.", "tokenizer.chat_template")
_FLOATS = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


@dataclass(frozen=True)
class Header:
    """The header of one GGUF file.

    Attributes:
        path: Where the file lies.
        types: ``{key: GGUF type name}``.
        metadata: ``{key: value}`` as `_core.read_gguf` gives it.
        shapes: ``{tensor name: ne}``, four numbers, fastest first.
        dtypes: ``{tensor name: ggml type name}``.
        ends: ``{tensor name: offset one past its last byte}``.
        parts: ``{tensor name: path}`` of the tensors that lie in another file.
    """

    path: str
    types: Mapping[str, str]
    metadata: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    ends: Mapping[str, int]
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: str,
        metadata: Mapping[str, tuple[str, Any]],
        tensors: Mapping[str, tuple[str, Shape, int]],
    ) -> Header:
        """Builds it from what `_core.read_gguf` returns.

        Raises:
            ModelLoadError: The file ends before its tensors do, or a tensor is empty.
        """
        for name, (_, shape, _) in tensors.items():
            if 0 in shape:
                raise ModelLoadError(f"{path}: tensor {name} has shape {shape}; it holds nothing")
        size = Path(path).stat().st_size
        end = max((end for _, _, end in tensors.values()), default=0)
        if end > size:
            raise ModelLoadError(
                f"{path}: the file is cut short: it has {size:,} bytes and its header promises "
                f"{end:,}; copy or download it again"
            )
        return cls(
            path,
            {key: kind for key, (kind, _) in metadata.items()},
            {key: value for key, (_, value) in metadata.items()},
            {name: shape for name, (_, shape, _) in tensors.items()},
            {name: dtype for name, (dtype, _, _) in tensors.items()},
            {name: end for name, (_, _, end) in tensors.items()},
        )

    @property
    def n_parts(self) -> int:
        """Files that the model is split into."""
        return self.positive("split.count") if "split.count" in self.types else 1

    def part_paths(self) -> list[str]:
        """Paths of the files after this one, the first of several.

        Raises:
            ModelLoadError: Its name is not that of a first part.
        """
        n_parts = self.n_parts
        if n_parts == 1:
            return []
        stem = self.path.removesuffix(f"-00001-of-{n_parts:05}.gguf")
        if stem == self.path:
            raise self.fail(
                f"it is one of {n_parts} parts of a model; pass the first, whose name must end in "
                f"-00001-of-{n_parts:05}.gguf"
            )
        return [f"{stem}-{part:05}-of-{n_parts:05}.gguf" for part in range(2, n_parts + 1)]

    def joined(self, others: Iterable[Header]) -> Header:
        """With the tensors of the model's other files."""
        shapes, dtypes, ends = dict(self.shapes), dict(self.dtypes), dict(self.ends)
        parts = dict(self.parts)
        for other in others:
            for name in other.shapes:
                if name in shapes:
                    raise other.fail(f"tensor {name} lies in another part of the model too")
            shapes |= other.shapes
            dtypes |= other.dtypes
            ends |= other.ends
            parts |= dict.fromkeys(other.shapes, other.path)
        return replace(self, shapes=shapes, dtypes=dtypes, ends=ends, parts=parts)

    @property
    def architecture(self) -> str:
        """``general.architecture``, empty if the file has none."""
        return str(self.metadata.get("general.architecture", ""))

    def array(self, name: str, n_axes: int) -> npt.NDArray[np.float32]:
        """A small tensor's values, float32, slowest axis first.

        Raises:
            ModelLoadError: It is neither F32, F16 nor BF16, has more axes, or holds NaN or
                infinity.
        """
        dtype = _FLOATS.get(self.dtypes[name])
        if dtype is None:
            raise self.fail(
                f"tensor {name} has type {self.dtypes[name]}; f32, f16 or bf16 is needed"
            )
        shape = self.shapes[name][:n_axes][::-1]
        if math.prod(shape) != math.prod(self.shapes[name]):
            raise self.fail(
                f"tensor {name} has shape {self.shapes[name]}; {n_axes} axes are needed"
            )
        path = self.parts.get(name, self.path)
        stored = np.empty(math.prod(shape), dtype)
        # not np.fromfile: it goes on after what a signal handler raises in it (numpy 2.4)
        with Path(path).open("rb") as file:
            file.seek(self.ends[name] - stored.nbytes)
            if file.readinto(stored.data) < stored.nbytes:
                raise ModelLoadError(f"{path}: tensor {name} is cut short")
        if dtype == "<u2":  # bf16 is the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        values = stored.astype(np.float32).reshape(shape)
        if not np.isfinite(values).all():
            raise self.fail(f"tensor {name} holds NaN or infinity")
        return values

    def lora_scale(self, rank: int) -> float:
        """What the product of an adapter's pair is multiplied with."""
        alpha = float(self.metadata["adapter.lora.alpha"])
        return alpha / rank if alpha else 1.0

    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell this model, tower or adapter from others.

        Of its settings, of the names, shapes and types of its tensors, and of the last bytes of
        each: a copy of the file has the same, another quantization has not. What describes the
        file and moves no vector does not count. Of a vocabulary the size counts, not the words.
        """
        digest = hashlib.blake2b(digest_size=8)
        for key in sorted(self.metadata):
            if not key.startswith(_DESCRIPTIONS):
                digest.update(f"{key}={self.metadata[key]!r}\n".encode())
        with ExitStack() as stack:
            files = {
                path: stack.enter_context(Path(path).open("rb"))
                for path in {self.path, *self.parts.values()}
            }
            for name in sorted(self.ends):
                digest.update(f"{name} {self.shapes[name]} {self.dtypes[name]}\n".encode())
                file = files[self.parts.get(name, self.path)]
                file.seek(max(self.ends[name] - _SAMPLE_BYTES, 0))
                digest.update(file.read(_SAMPLE_BYTES))
        return digest.hexdigest()

    def fail(self, why: str) -> ModelLoadError:
        """An error about this file."""
        return ModelLoadError(f"{self.path}: {why}")

    def check_dtypes(self, *, vectors: str | None = None) -> None:
        """Raises ModelLoadError for weights of a type that no kernel takes.

        Args:
            vectors: The one type that tensors of one axis may have, None for any.
        """
        for name, dtype in self.dtypes.items():
            is_vector = set(self.shapes[name][1:]) == {1}
            if dtype in _NO_WEIGHTS or (vectors and is_vector and dtype != vectors):
                needed = vectors if vectors and is_vector else "a float or quantized type"
                raise self.fail(f"tensor {name} has type {dtype}; {needed} is needed")

    def epsilon(self, key: str) -> None:
        """Raises ModelLoadError unless ``key`` is a finite float32, not below 0."""
        value = self.metadata.get(key)
        if self.types.get(key) != "f32" or not 0 <= float(value or 0.0) < math.inf:
            raise self.fail(f"{key} is {value!r}; a float from 0 on is needed")

    def numbers(self, key: str, *, above: float) -> None:
        """Raises ModelLoadError unless ``key`` holds three numbers above a limit.

        Numbers with which a pixel could leave float32's range are refused too.
        """
        values = self.metadata.get(key)
        if (
            not isinstance(values, list)
            or len(values) != _CHANNELS
            or not all(above < value and is_moderate(value) for value in values)
        ):
            raise self.fail(
                f"{key} is {values!r}; three numbers above {above:g}, of a size from 1e-6 to 1e6, "
                "are needed"
            )

    def positive(self, key: str) -> int:
        """The value of ``key``, a whole number from 1 on that a C int holds."""
        value = self.metadata.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise self.fail(f"{key} is {value!r}; a whole number from 1 to 2**31 - 1 is needed")
        return value


def is_moderate(value: float) -> bool:
    """Whether no pixel can leave float32's range by this mean or deviation."""
    return value == 0 or 1e-6 <= abs(value) <= 1e6


def check_readable(path: str) -> None:
    """Raises ModelLoadError unless ``path`` is a file that can be opened."""
    try:
        if not Path(path).exists():
            raise ModelLoadError(f"{path}: there is no such file")
        if not Path(path).is_file():
            raise ModelLoadError(f"{path}: {_no_file(Path(path))}")
        with Path(path).open("rb") as file:
            magic = file.read(4)
    except ModelLoadError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ModelLoadError(f"{path}: the file cannot be opened: {why}") from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path}: not a GGUF file: it starts with {magic!r} instead of b'GGUF'"
        )


def _no_file(path: Path) -> str:
    if (path / "config.json").exists():
        return "this is no file but a checkpoint; `jmm convert` makes GGUF files of it"
    return "this is no file; a GGUF file, or a folder from `jmm convert`, is needed"


def check_text(header: Header) -> None:
    """Checks a language model.

    Raises:
        ModelLoadError: It is another kind of file, or its numbers contradict each other.
    """
    if not isinstance(header.metadata.get("general.architecture", ""), str):
        raise header.fail("general.architecture is no text")
    architecture = header.architecture
    if not architecture:
        raise header.fail("the file names no general.architecture")
    if architecture == "clip":
        raise header.fail("this is a vision tower; pass it as mmproj=, and a language model first")
    n_tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(n_tokens, tuple) and n_tokens[0] != n_tokens[1]:
        raise header.fail(f"{n_tokens[0] - n_tokens[1]} tokens of the vocabulary occur twice")
    vocabulary = header.metadata.get("tokenizer.ggml.model")
    if vocabulary in _ENCODER_VOCABULARIES and architecture not in _ENCODERS:
        raise header.fail(
            f"encoders of architecture {architecture!r} are not supported; "
            f"{', '.join(_ENCODERS)} is, and causal models are"
        )
    pooling = f"{architecture}.pooling_type"
    if header.types.get(pooling, "u32") != "u32":
        raise header.fail(f"{pooling} is {header.metadata[pooling]!r}; a number is needed")
    n_out = header.metadata.get(f"{architecture}.embedding_length_out")
    is_projected = architecture in _PROJECTED
    n_embd = header.metadata.get(f"{architecture}.embedding_length")
    if n_out is not None and n_out != n_embd and not is_projected:
        raise header.fail(
            f"{architecture}.embedding_length_out is {n_out!r}; only embedding_length is supported"
        )
    window = header.metadata.get(f"{architecture}.attention.sliding_window", 0)
    if isinstance(window, int) and not 0 <= window <= _MAX_SLIDING_WINDOW:
        raise header.fail(
            f"{architecture}.attention.sliding_window is {window}; 0 to {_MAX_SLIDING_WINDOW:,} "
            "are supported"
        )
    for key in _POSITIVE.get(architecture, ()):
        header.positive(f"{architecture}.{key}")
    if architecture in _LANGUAGE_MODELS.values():
        _check_qwen(header, architecture)
    elif architecture == "bert":
        _check_bert(header)
    elif architecture == "gemma-embedding":
        _check_gemma_embedding(header)
    elif architecture == "gemma-embedding2":
        _check_gemma_embedding2(header)
    else:
        header.check_dtypes()
        _check_attention_heads(header, architecture)


def _check_bert(header: Header) -> None:
    header.check_dtypes(vectors="f32")
    n_embd = header.positive("bert.embedding_length")
    n_head = header.positive("bert.attention.head_count")
    if n_embd % n_head:
        raise header.fail(f"{n_embd} components cannot be split into {n_head} heads")
    header.epsilon("bert.attention.layer_norm_epsilon")
    header.positive("bert.context_length")
    if header.dtypes.get("token_types.weight", "f32") != "f32":
        raise header.fail(
            f"tensor token_types.weight has type {header.dtypes['token_types.weight']}; f32 is "
            "needed"
        )


def _check_attention_heads(header: Header, arch: str) -> None:
    """llama.cpp divides by the number of heads, which only models without attention may lack."""
    if arch in _WITHOUT_HEADS:
        return
    key = f"{arch}.attention.head_count"
    counts = header.metadata.get(key, 0)
    counts = counts if isinstance(counts, list) else [counts]
    is_hybrid = any(
        name.startswith((f"{arch}.ssm.", f"{arch}.shortconv.")) for name in header.types
    )
    least = max(counts, default=0) if is_hybrid else min(counts, default=0)
    if not isinstance(least, int) or least < 1:
        raise header.fail(f"{key} is {header.metadata.get(key)!r}; 1 and more is needed")


def _check_gemma_embedding(header: Header) -> None:
    header.check_dtypes()
    header.epsilon("gemma-embedding.attention.layer_norm_rms_epsilon")
    n_embd = header.positive("gemma-embedding.embedding_length")
    header.positive("gemma-embedding.attention.sliding_window")
    modules = [name for name in ("dense_2.weight", "dense_3.weight") if name in header.shapes]
    if len(modules) == 1:
        raise header.fail(f"it has {modules[0]} without its counterpart")
    if modules:
        n_between = header.positive("gemma-embedding.dense_2_feat_out")
        for key, wanted in (
            ("dense_2_feat_in", n_embd),
            ("dense_3_feat_in", n_between),
            ("dense_3_feat_out", n_embd),
        ):
            found = header.metadata.get(f"gemma-embedding.{key}")
            if found != wanted:
                raise header.fail(f"gemma-embedding.{key} is {found!r}; {wanted} is needed")
        _expect(header, "dense_2.weight", (n_embd, n_between))
        _expect(header, "dense_3.weight", (n_between, n_embd))


def _check_gemma_embedding2(header: Header) -> None:
    arch = "gemma-embedding2"
    header.check_dtypes(vectors="f32")
    header.epsilon(f"{arch}.attention.layer_norm_rms_epsilon")
    n_embd = header.positive(f"{arch}.embedding_length")
    n_out = n_embd
    if f"{arch}.embedding_length_out" in header.types:
        n_out = header.positive(f"{arch}.embedding_length_out")
    n_layer = header.positive(f"{arch}.block_count")
    if n_layer > _MAX_LAYERS:
        raise header.fail(f"{arch}.block_count is {n_layer}; at most {_MAX_LAYERS} are supported")
    header.positive(f"{arch}.context_length")
    header.positive(f"{arch}.attention.sliding_window")
    n_head = header.positive(f"{arch}.attention.head_count")
    for key in ("expert_count", "nextn_predict_layers"):
        if header.metadata.get(f"{arch}.{key}", 0) != 0:
            raise header.fail(f"{arch}.{key} is {header.metadata[f'{arch}.{key}']}; 0 is supported")
    counts = header.metadata.get(f"{arch}.attention.head_count_kv", n_head)
    for count in counts if isinstance(counts, list) else [counts]:
        if not isinstance(count, int) or count < 1 or n_head % count:
            raise header.fail(f"{n_head} heads cannot share {count!r} keys and values")
    for kind in ("", "_swa"):
        head = header.positive(f"{arch}.attention.key_length{kind}")
        rotated = header.metadata.get(f"{arch}.rope.dimension_count{kind}", head)
        if head % 4 or rotated != head:
            raise header.fail(
                f"{arch}.rope.dimension_count{kind} is {rotated!r}; the head has {head}, and a "
                "multiple of 4 is needed"
            )
    n_per_layer = header.positive(f"{arch}.embedding_length_per_layer_input")
    _expect(header, "per_layer_model_proj.weight", (n_embd, n_per_layer * n_layer))
    _expect(header, "output.weight", (n_embd, n_out))


def _check_qwen(header: Header, arch: str) -> None:
    header.check_dtypes(vectors="f32")
    head = _head(header, arch)
    n_rot = header.metadata.get(f"{arch}.rope.dimension_count", head)
    if n_rot != head:
        raise header.fail(f"{arch}.rope.dimension_count is {n_rot}; the head has {head}")
    sections = header.metadata.get(f"{arch}.rope.dimension_sections")
    if (
        not isinstance(sections, list)
        or min(sections, default=-1) < 0
        or sum(sections[:3]) * 2 != head
        or sum(sections) * 2 != head
    ):
        raise header.fail(
            f"{arch}.rope.dimension_sections is {sections}; the first three must sum to "
            f"{head // 2}, half of the head"
        )
    scaling = header.metadata.get(f"{arch}.rope.scaling.type", "none")
    if scaling not in _ROPE_SCALINGS:
        raise header.fail(
            f"{arch}.rope.scaling.type is {scaling!r}; {', '.join(_ROPE_SCALINGS)} are supported"
        )
    for key in (f"{arch}.expert_count", f"{arch}.nextn_predict_layers"):
        if header.metadata.get(key, 0) != 0:
            raise header.fail(f"{key} is {header.metadata[key]}; 0 is supported")
    header.epsilon(f"{arch}.attention.layer_norm_rms_epsilon")
    n_head = header.positive(f"{arch}.attention.head_count")
    n_head_kv = header.positive(f"{arch}.attention.head_count_kv")
    if n_head % n_head_kv:
        raise header.fail(f"{n_head} heads cannot share {n_head_kv} keys and values")
    n_layer = header.positive(f"{arch}.block_count")
    if n_layer > _MAX_LAYERS:
        raise header.fail(f"{arch}.block_count is {n_layer}; at most {_MAX_LAYERS} are supported")
    n_deepstack = _n_deepstack(header)
    if n_deepstack >= n_layer:
        raise header.fail(
            f"{arch}.n_deepstack_layers is {n_deepstack}; below {n_layer}, the layers, is needed"
        )
    header.positive(f"{arch}.context_length")


def _head(header: Header, arch: str) -> int:
    """Components of an attention head."""
    n_embd = header.positive(f"{arch}.embedding_length")
    n_head = header.positive(f"{arch}.attention.head_count")
    key = f"{arch}.attention.key_length"
    head = header.positive(key) if key in header.types else n_embd // n_head
    if arch == "qwen3vl":
        value = header.metadata.get(f"{arch}.attention.value_length", n_embd // n_head)
        if value != head:
            raise header.fail(f"keys have {head} components and values {value!r}; both must agree")
    elif n_embd % n_head or head != n_embd // n_head:
        raise header.fail(f"{n_embd} components cannot be split into {n_head} heads of {head}")
    return head


def _n_deepstack(text: Header) -> int:
    """Layers of a language model that take rows of their own from the vision tower."""
    key = f"{text.architecture}.n_deepstack_layers"
    return text.positive(key) if text.metadata.get(key, 0) != 0 else 0


def check_adapter(header: Header, text: Header) -> None:
    """Checks a LoRA adapter and that it belongs to a language model.

    Raises:
        ModelLoadError: It is another kind of file, or belongs to another architecture.
    """
    for key, kind, value in (
        ("general.type", "str", "adapter"),
        ("general.architecture", "str", text.architecture),
        ("adapter.type", "str", "lora"),
    ):
        if header.types.get(key) != kind or header.metadata[key] != value:
            found = header.metadata.get(key)
            raise header.fail(f"{key} is {found!r}; an adapter of {text.path} has {value!r}")
    alpha = header.metadata.get("adapter.lora.alpha")
    if header.types.get("adapter.lora.alpha") != "f32" or not math.isfinite(alpha or 0.0):
        raise header.fail(f"adapter.lora.alpha is {alpha!r}; a finite float is needed")
    if "adapter.alora.invocation_tokens" in header.types:
        raise header.fail("activated LoRA (alora) is not supported")
    header.check_dtypes()
    if not header.shapes:
        raise header.fail("the adapter changes nothing: it has no tensors")
    for name in header.shapes:
        _check_half(header, name, text)


def _check_half(header: Header, name: str, text: Header) -> None:
    """One tensor of an adapter; ``lora_a`` checks the pair."""
    base, _, half = name.rpartition(".lora_")
    if half not in ("a", "b"):
        raise header.fail(f"tensor {name} is no half of a LoRA pair; others cannot be applied")
    other = f"{base}.lora_{'b' if half == 'a' else 'a'}"
    if other not in header.shapes:
        raise header.fail(f"it has {name} without its counterpart")
    if base == PROJECTOR_WEIGHT or half == "b":
        return
    if base not in text.shapes:
        raise header.fail(f"{text.path} has no tensor {base}, which the adapter changes")
    n_in, n_out, *rest = text.shapes[base]
    if n_out == 1:
        raise header.fail(f"tensor {base} is no matrix; LoRA pairs of others cannot be applied")
    low, high = header.shapes[name], header.shapes[other]
    rank = high[0]
    # llama.cpp keeps the pair of the embeddings so that a token's row is one of lora_a's
    wanted = (rank, n_out, *rest) if base == _EMBEDDINGS else (n_in, rank, *rest)
    if low != wanted or high != (rank, n_in if base == _EMBEDDINGS else n_out, *rest):
        raise header.fail(f"{name} is {low} and {other} is {high}; they do not fit {base}")


def check_mmproj(header: Header, text: Header | None = None) -> None:
    """Checks a vision tower and, if one is given, that it belongs to a language model.

    Raises:
        ModelLoadError: It is another kind of file, of a family that is not supported, does not
            fit the language model, or its numbers contradict each other.
    """
    if header.architecture != "clip":
        raise header.fail(
            f"this is a language model of architecture {header.architecture!r}, not a vision "
            "tower; mmproj= takes the mmproj file"
        )
    for key in _MMPROJ_REQUIRED:
        if key not in header.types:
            raise header.fail(f"{key} is missing")
    for key in _PROJECTOR_TYPE:
        if header.types.get(key, "str") != "str":
            raise header.fail(f"{key} is {header.metadata[key]!r}; a text is needed")
    if not header.metadata.get("clip.has_vision_encoder", False):
        raise header.fail("the file has no vision tower")
    projector = header.metadata.get("clip.projector_type") or header.metadata.get(
        "clip.vision.projector_type"
    )
    if projector not in PROJECTORS and projector not in TILE_PROJECTORS:
        families = ", ".join((*PROJECTORS.values(), *TILE_PROJECTORS.values()))
        raise header.fail(f"projector type {projector!r} is not supported; {families} are")
    header.check_dtypes(vectors="f32")
    header.epsilon("clip.vision.attention.layer_norm_epsilon")
    header.numbers("clip.vision.image_mean", above=-math.inf)
    header.numbers("clip.vision.image_std", above=0)
    for key in _MMPROJ_OPTIONAL:
        if key in header.types:
            header.positive(key)
    if projector in TILE_PROJECTORS:
        if text is not None:
            _check_tile_pair(header, text, projector)
        if projector == "gemma4v":
            _check_gemma4_tower(header)
        else:
            _check_tile_tower(header, projector)
        return
    if text is not None:
        _check_pair(header, text, _LANGUAGE_MODELS[projector])
    if projector == "qwen3vl_merger":
        _check_qwen3_tower(header)
    else:
        _check_tower(header, windowed=projector == "qwen2.5vl_merger")


def _check_pair(header: Header, text: Header, architecture: str) -> None:
    if text.architecture != architecture:
        raise header.fail(
            f"the language model {text.path} has architecture {text.architecture!r}; this vision "
            f"tower belongs to a {architecture} model"
        )
    n_given, n_taken = len(_deepstack_layers(header)), _n_deepstack(text)
    if n_given != n_taken:
        raise header.fail(
            f"{n_given} of its layers feed layers of a language model, and {text.path} takes "
            f"{n_taken}; the two files belong to different models"
        )
    _check_width(header, text)


def _check_width(header: Header, text: Header) -> None:
    n_embd = text.positive(f"{text.architecture}.embedding_length")
    n_out = header.positive("clip.vision.projection_dim")
    if n_embd != n_out:
        raise header.fail(
            f"it gives rows of {n_out} numbers, the language model {text.path} takes {n_embd}; "
            "the two files belong to different models"
        )


def tile_tokens(projector: str, metadata: Mapping[str, Any]) -> int:
    """Rows that a tower makes of one tile."""
    n_patches = metadata["clip.vision.image_size"] // metadata["clip.vision.patch_size"]
    return int((n_patches // scale_factor(projector, metadata)) ** 2)


def scale_factor(projector: str, metadata: Mapping[str, Any]) -> int:
    """Patches per side that become one row."""
    default = {"gemma3": 4, "gemma4v": 3, "mlp": 1}.get(projector, 2)
    return int(metadata.get("clip.vision.projector.scale_factor", default))


def gemma4_sizes(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Pixels per side of a row of Gemma 4's tower, and the most rows of a picture.

    The number is what transformers' processors make by default (``max_soft_tokens``), unless the
    file has ``clip.vision.image_max_pixels``.
    """
    side = metadata["clip.vision.patch_size"] * scale_factor("gemma4v", metadata)
    area = metadata.get("clip.vision.image_max_pixels", _GEMMA4_TOKENS * side**2)
    return side, area // side**2


def _check_tile_pair(header: Header, text: Header, projector: str) -> None:
    if (projector == "gemma4v") != (text.architecture == _GEMMA4_LANGUAGE_MODEL):
        raise header.fail(
            f"the language model {text.path} has architecture {text.architecture!r}; vision "
            f"towers of kind gemma4v and models of architecture {_GEMMA4_LANGUAGE_MODEL!r} are "
            "supported with each other alone"
        )
    if f"{text.architecture}.rope.dimension_sections" in text.types:
        raise header.fail(
            f"pictures of the language model {text.path} have rows and columns; this vision tower "
            "belongs to another architecture"
        )
    _check_width(header, text)


def _check_tile_tower(header: Header, projector: str) -> None:
    n_embd = _check_heads(header)
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    side = header.positive("clip.vision.image_size")
    for key in ("projector.scale_factor", "preproc_image_size", "preproc_min_tiles"):
        if f"clip.vision.{key}" in header.types:
            header.positive(f"clip.vision.{key}")
    scale = scale_factor(projector, header.metadata)
    if side > _MAX_TILE or side % patch or side // patch % scale:
        raise header.fail(
            f"image_size is {side}; a multiple of {patch * scale} up to {_MAX_TILE} is needed"
        )
    if tile_tokens(projector, header.metadata) > _MAX_TILE_ROWS:
        raise header.fail(
            f"a picture of {side} x {side} pixels gives "
            f"{tile_tokens(projector, header.metadata)} rows; {_MAX_TILE_ROWS} are supported"
        )
    least = header.metadata.get("clip.vision.preproc_min_tiles", 1)
    most = header.metadata.get("clip.vision.preproc_max_tiles", 12)
    if not isinstance(most, int) or not least <= most <= _MAX_TILES:
        raise header.fail(
            f"preproc_min_tiles is {least} and preproc_max_tiles is {most!r}; numbers that do not "
            f"cross, up to {_MAX_TILES}, are needed"
        )
    for name in _NOT_IN_TILE_TOWERS:
        if name in header.shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")

    if "clip.vision.image_grid_pinpoints" in header.types:
        raise header.fail("LLaVA-NeXT's grids of pictures are not supported; LLaVA 1.5 is")
    has_class = projector in ("mlp", "internvl")
    _expect(header, "v.patch_embd.weight", (patch, patch, _CHANNELS, n_embd))
    if "v.patch_embd.bias" in header.shapes:
        _expect(header, "v.patch_embd.bias", (n_embd,))
    n_patches = (side // patch) ** 2
    _expect(header, "v.position_embd.weight", (n_embd, n_patches + has_class))
    if has_class:
        _expect(header, "v.class_embd", (n_embd,))
    for name in ("v.pre_ln", "v.post_ln"):
        if f"{name}.weight" in header.shapes:
            _expect(header, f"{name}.weight", (n_embd,))
            _expect(header, f"{name}.bias", (n_embd,))
    _check_tile_projector(header, projector, n_embd, n_embd * scale**2, n_out)
    for layer in range(_n_layer(header)):
        _check_attention(header, f"v.blk.{layer}.", n_embd)
        _check_layer(header, f"v.blk.{layer}.", n_embd, windowed=False)
        for name in (f"v.blk.{layer}.ls1.weight", f"v.blk.{layer}.ls2.weight"):
            if name in header.shapes:
                _expect(header, name, (n_embd,))


def _check_gemma4_tower(header: Header) -> None:
    n_embd = _check_heads(header)
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    header.positive("clip.vision.image_size")
    if "clip.vision.projector.scale_factor" in header.types:
        header.positive("clip.vision.projector.scale_factor")
    scale = scale_factor("gemma4v", header.metadata)
    side, n_tokens = gemma4_sizes(header.metadata)
    if side > _MAX_TILE or not 1 <= n_tokens <= _GEMMA4_MAX_TOKENS:
        raise header.fail(
            f"a picture gives {n_tokens} rows of {side} x {side} pixels; 1 to "
            f"{_GEMMA4_MAX_TOKENS} of up to {_MAX_TILE} are supported"
        )
    n_positions = header.shapes.get("v.position_embd.weight", (0, 0))[1]
    if n_positions < n_tokens * scale:
        raise header.fail(
            f"v.position_embd.weight has {n_positions} rows per axis; a picture may need "
            f"{n_tokens * scale}"
        )
    shapes: dict[str, Shape] = {
        "v.patch_embd.weight": (patch, patch, _CHANNELS, n_embd),
        "v.position_embd.weight": (n_embd, n_positions, 2),
        "mm.input_projection.weight": (n_embd, n_out),
    }
    standardised = [name for name in ("v.std_bias", "v.std_scale") if name in header.shapes]
    if len(standardised) == 1:
        raise header.fail(f"it has {standardised[0]} without its counterpart")
    shapes |= dict.fromkeys(standardised, (n_embd,))
    for layer in range(_n_layer(header)):
        shapes |= _gemma4_layer(header, f"v.blk.{layer}.", n_embd)
    for name, shape in shapes.items():
        _expect(header, name, shape)
    for name in header.shapes:
        owner, _, kind = name.rpartition(".")
        if kind in _CLAMPS and f"{owner}.weight" in header.shapes:
            _expect(header, name, (1,))
        elif name.startswith(("v.", "mm.")) and not name.startswith("mm.a.") and name not in shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")


def _gemma4_layer(header: Header, prefix: str, n_embd: int) -> dict[str, Shape]:
    head = n_embd // header.positive("clip.vision.attention.head_count")
    n_ff = header.shapes.get(f"{prefix}ffn_up.weight", (0, 0))[1]
    shapes: dict[str, Shape] = {
        "ffn_gate": (n_embd, n_ff),
        "ffn_up": (n_embd, n_ff),
        "ffn_down": (n_ff, n_embd),
    }
    shapes |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (n_embd, n_embd))
    shapes |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (head,))
    shapes |= dict.fromkeys(("ln1", "ln2", "attn_post_norm", "ffn_post_norm"), (n_embd,))
    return {f"{prefix}{name}.weight": shape for name, shape in shapes.items()}


def _check_tile_projector(
    header: Header, projector: str, n_embd: int, n_merged: int, n_out: int
) -> None:
    if projector == "gemma3":
        _expect(header, "mm.input_projection.weight", (n_out, n_embd))
        _expect(header, "mm.soft_emb_norm.weight", (n_embd,))
    elif projector == "idefics3":
        _expect(header, "mm.model.fc.weight", (n_merged, n_out))
    elif projector == "mlp":
        n_between = header.shapes.get("mm.0.weight", (0, 0))[1]
        _expect(header, "mm.0.weight", (n_embd, n_between))
        _expect(header, "mm.0.bias", (n_between,))
        _expect(header, "mm.2.weight", (n_between, n_out))
        _expect(header, "mm.2.bias", (n_out,))
    else:
        n_between = header.shapes.get("mm.model.mlp.1.weight", (0, 0))[1]
        for kind in ("weight", "bias"):
            _expect(header, f"mm.model.mlp.0.{kind}", (n_merged,))
        _expect(header, "mm.model.mlp.1.weight", (n_merged, n_between))
        _expect(header, "mm.model.mlp.1.bias", (n_between,))
        _expect(header, "mm.model.mlp.3.weight", (n_between, n_out))
        _expect(header, "mm.model.mlp.3.bias", (n_out,))


def _check_tower(header: Header, *, windowed: bool) -> None:
    n_embd, merge = _check_sizes(header)
    if windowed:
        pixels = header.positive("clip.vision.patch_size") * merge
        header.positive("clip.vision.n_wa_pattern")
        window = header.metadata.get("clip.vision.window_size", _DEFAULT_WINDOW)
        if window <= 0 or window % pixels:
            raise header.fail(f"window_size is {window}; a multiple of {pixels} is needed")
    for name in _NOT_IN_QWEN:
        if name in header.shapes:
            raise header.fail(f"tensor {name} has no place in this vision tower")
    _check_ends(header, n_embd, biased=not windowed)
    for layer in range(_n_layer(header)):
        prefix = f"v.blk.{layer}."
        _check_attention(header, prefix, n_embd)
        _check_layer(header, prefix, n_embd, windowed=windowed)


def _check_qwen3_tower(header: Header) -> None:
    n_embd, merge = _check_sizes(header)
    if header.metadata.get("clip.use_gelu") is not True:
        raise header.fail("clip.use_gelu is not true; the layers of this tower have GELU")
    for name in header.shapes:
        if name == "v.class_embd" or ".ffn_gate." in name or name.startswith("v.pre_ln."):
            raise header.fail(f"tensor {name} has no place in this vision tower")
    _expect(header, "v.patch_embd.bias", (n_embd,))
    n_positions = header.shapes.get("v.position_embd.weight", (0, 0))[1]
    if math.isqrt(n_positions) ** 2 != n_positions:
        raise header.fail(f"v.position_embd.weight has {n_positions} rows; a square is needed")
    _expect(header, "v.position_embd.weight", (n_embd, max(n_positions, 1)))
    _check_ends(header, n_embd, biased=True)
    n_layer = _n_layer(header)
    for layer in range(n_layer):
        prefix = f"v.blk.{layer}."
        _expect(header, f"{prefix}attn_qkv.weight", (n_embd, 3 * n_embd))
        _expect(header, f"{prefix}attn_qkv.bias", (3 * n_embd,))
        _check_layer(header, prefix, n_embd, windowed=False)
    merged = n_embd * merge * merge
    n_out = header.positive("clip.vision.projection_dim")
    for index in _deepstack_layers(header):
        if not index.isdecimal() or not 0 <= int(index) < n_layer:
            raise header.fail(f"v.deepstack.{index} is none of the {n_layer} layers")
        for name, shape in (
            ("norm", (merged,)),
            ("fc1", (merged, merged)),
            ("fc2", (merged, n_out)),
        ):
            _expect(header, f"v.deepstack.{index}.{name}.weight", shape)
            _expect(header, f"v.deepstack.{index}.{name}.bias", shape[-1:])


def _deepstack_layers(header: Header) -> list[str]:
    names = (name.split(".") for name in header.shapes if name.startswith("v.deepstack."))
    return list(dict.fromkeys(index for _, _, index, *_ in names))


def _check_sizes(header: Header) -> tuple[int, int]:
    """The tower's width, and patches per side of a token."""
    n_embd = _check_heads(header)
    merge = header.metadata.get("clip.vision.spatial_merge_size", MERGE_SIZE)
    if merge != MERGE_SIZE:
        raise header.fail(f"spatial_merge_size is {merge}; {MERGE_SIZE} is supported")
    return n_embd, MERGE_SIZE


def _check_heads(header: Header) -> int:
    """The tower's width."""
    n_embd = header.positive("clip.vision.embedding_length")
    n_head = header.positive("clip.vision.attention.head_count")
    if n_embd % n_head or (n_embd // n_head) % 4:
        raise header.fail(f"{n_embd} components cannot be split into {n_head} heads")
    head = header.metadata.get("clip.vision.attention.head_dim", n_embd // n_head)
    if head != n_embd // n_head:
        raise header.fail(f"head_dim is {head}; {n_embd} components have {n_embd // n_head}")
    return n_embd


def _n_layer(header: Header) -> int:
    n_layer = header.positive("clip.vision.block_count")
    if n_layer > _MAX_TOWER_LAYERS:
        raise header.fail(
            f"clip.vision.block_count is {n_layer}; at most {_MAX_TOWER_LAYERS} are supported"
        )
    return n_layer


def _check_ends(header: Header, n_embd: int, *, biased: bool) -> None:
    """What comes before the layers and after them."""
    n_out = header.positive("clip.vision.projection_dim")
    patch = header.positive("clip.vision.patch_size")
    if "v.patch_embd.weight_flat" in header.shapes:
        _expect(header, "v.patch_embd.weight_flat", (patch * patch * _CHANNELS * 2, n_embd))
    else:
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            _expect(header, name, (patch, patch, _CHANNELS, n_embd))
    merged = n_embd * MERGE_SIZE**2
    _expect(header, "v.post_ln.weight", (n_embd,))
    if biased:
        _expect(header, "v.post_ln.bias", (n_embd,))
    _expect(header, "mm.0.weight", (merged, merged))
    _expect(header, "mm.0.bias", (merged,))
    _expect(header, "mm.2.weight", (merged, n_out))
    _expect(header, "mm.2.bias", (n_out,))


def _check_attention(header: Header, prefix: str, n_embd: int) -> None:
    for name in ("attn_q", "attn_k", "attn_v"):
        _expect(header, f"{prefix}{name}.weight", (n_embd, n_embd))
        _expect(header, f"{prefix}{name}.bias", (n_embd,))


def _check_layer(header: Header, prefix: str, n_embd: int, *, windowed: bool) -> None:
    _expect(header, f"{prefix}attn_out.weight", (n_embd, n_embd))
    _expect(header, f"{prefix}attn_out.bias", (n_embd,))
    for name in ("ln1", "ln2"):
        _expect(header, f"{prefix}{name}.weight", (n_embd,))
        if not windowed:
            _expect(header, f"{prefix}{name}.bias", (n_embd,))
    # Old converters named the two the other way round, which libmtmd tells by their shape.
    up, down = f"{prefix}ffn_up", f"{prefix}ffn_down"
    if header.shapes.get(f"{down}.weight", ())[:1] == (n_embd,):
        up, down = down, up
    n_ff = header.shapes.get(f"{up}.weight", (0, 0))[1]
    if n_ff == n_embd:
        raise header.fail(f"{up}.weight is square, which cannot be told from its counterpart")
    _expect(header, f"{up}.weight", (n_embd, n_ff))
    _expect(header, f"{down}.weight", (n_ff, n_embd))
    _expect(header, f"{up}.bias", (n_ff,))
    _expect(header, f"{down}.bias", (n_embd,))
    if windowed:
        _expect(header, f"{prefix}ffn_gate.weight", (n_embd, n_ff))
        _expect(header, f"{prefix}ffn_gate.bias", (n_ff,))


def _expect(header: Header, name: str, shape: Shape) -> None:
    found = header.shapes.get(name)
    if found is None:
        raise header.fail(f"tensor {name} is missing")
    wanted = shape + (1,) * (4 - len(shape))
    if found != wanted:
        raise header.fail(f"tensor {name} has shape {found}; {wanted} is needed")
