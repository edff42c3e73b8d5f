"""Checks of a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmm.gguf_header.file import expect

if TYPE_CHECKING:
    from jmm.gguf_header.file import Header

_ENCODER_VOCABULARIES = ("bert", "t5")
_ENCODERS = ("bert",)
# Their last matrix gives rows of another width than the layers have.
_PROJECTED = ("gemma-embedding2",)
# Whole numbers from 1 on that llama.cpp divides by, or makes shapes of, without looking.
_POSITIVE = {
    "mamba": ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"),
    "lfm2": ("shortconv.l_cache",),
}
_QWEN = ("qwen2vl", "qwen3vl")
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_WITHOUT_HEADS = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
_MAX_SLIDING_WINDOW = 2**22  # times 256 sequences, llama.cpp's product still fits in 32 bits
MAX_LAYERS = 512  # LLAMAMAX_LAYERS


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
    if header.metadata.get("general.type") == "adapter":
        raise header.fail("this is a LoRA adapter; pass it as adapters={task: path}")
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
    if architecture in _QWEN:
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
        expect(header, "dense_2.weight", (n_embd, n_between))
        expect(header, "dense_3.weight", (n_between, n_embd))


def _check_gemma_embedding2(header: Header) -> None:
    arch = "gemma-embedding2"
    header.check_dtypes(vectors="f32")
    header.epsilon(f"{arch}.attention.layer_norm_rms_epsilon")
    n_embd = header.positive(f"{arch}.embedding_length")
    n_out = n_embd
    if f"{arch}.embedding_length_out" in header.types:
        n_out = header.positive(f"{arch}.embedding_length_out")
    n_layer = header.positive(f"{arch}.block_count")
    if n_layer > MAX_LAYERS:
        raise header.fail(f"{arch}.block_count is {n_layer}; at most {MAX_LAYERS} are supported")
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
    expect(header, "per_layer_model_proj.weight", (n_embd, n_per_layer * n_layer))
    expect(header, "output.weight", (n_embd, n_out))


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
    if n_layer > MAX_LAYERS:
        raise header.fail(f"{arch}.block_count is {n_layer}; at most {MAX_LAYERS} are supported")
    n_taking = n_deepstack(header)
    if n_taking >= n_layer:
        raise header.fail(
            f"{arch}.n_deepstack_layers is {n_taking}; below {n_layer}, the layers, is needed"
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


def n_deepstack(text: Header) -> int:
    """Layers of a language model that take rows of their own from the vision tower."""
    key = f"{text.architecture}.n_deepstack_layers"
    return text.positive(key) if text.metadata.get(key, 0) != 0 else 0
