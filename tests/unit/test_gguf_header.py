"""Every promise of a header that is checked, broken one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jmm import _core
from jmm.errors import ModelLoadError
from jmm.gguf_header import Header, check_mmproj, check_readable, check_text

TEXT = {
    "general.architecture": ("str", "qwen2vl"),
    "qwen2vl.block_count": ("u32", 2),
    "qwen2vl.context_length": ("u32", 4096),
    "qwen2vl.embedding_length": ("u32", 64),
    "qwen2vl.attention.head_count": ("u32", 4),
    "qwen2vl.attention.head_count_kv": ("u32", 2),
    "qwen2vl.rope.dimension_sections": ("arr[i32]", [2, 3, 3, 0]),
    "qwen2vl.attention.layer_norm_rms_epsilon": ("f32", 1e-6),
}
TOWER = {
    "general.architecture": ("str", "clip"),
    "clip.has_vision_encoder": ("bool", True),
    "clip.projector_type": ("str", "qwen2.5vl_merger"),
    "clip.vision.projection_dim": ("u32", 64),
    "clip.vision.image_size": ("u32", 560),
    "clip.vision.patch_size": ("u32", 14),
    "clip.vision.embedding_length": ("u32", 32),
    "clip.vision.feed_forward_length": ("u32", 48),
    "clip.vision.block_count": ("u32", 1),
    "clip.vision.attention.head_count": ("u32", 2),
    "clip.vision.attention.layer_norm_epsilon": ("f32", 1e-6),
    "clip.vision.image_mean": ("arr[f32]", [0.5, 0.5, 0.5]),
    "clip.vision.image_std": ("arr[f32]", [0.5, 0.5, 0.5]),
    "clip.vision.n_wa_pattern": ("u32", 2),
}
MATRICES = {
    "v.patch_embd.weight": (14, 14, 3, 32),
    "v.patch_embd.weight.1": (14, 14, 3, 32),
    "mm.0.weight": (128, 128),
    "mm.2.weight": (128, 64),
    "v.blk.0.attn_q.weight": (32, 32),
    "v.blk.0.attn_k.weight": (32, 32),
    "v.blk.0.attn_v.weight": (32, 32),
    "v.blk.0.attn_out.weight": (32, 32),
    "v.blk.0.ffn_up.weight": (32, 48),
    "v.blk.0.ffn_gate.weight": (32, 48),
    "v.blk.0.ffn_down.weight": (48, 32),
}
VECTORS = {
    "v.post_ln.weight": (32,),
    "mm.0.bias": (128,),
    "mm.2.bias": (64,),
    "v.blk.0.attn_q.bias": (32,),
    "v.blk.0.attn_k.bias": (32,),
    "v.blk.0.attn_v.bias": (32,),
    "v.blk.0.attn_out.bias": (32,),
    "v.blk.0.ln1.weight": (32,),
    "v.blk.0.ln2.weight": (32,),
    "v.blk.0.ffn_up.bias": (48,),
    "v.blk.0.ffn_gate.bias": (48,),
    "v.blk.0.ffn_down.bias": (32,),
}
TENSORS = MATRICES | VECTORS


def header(
    path: str, metadata: dict[str, tuple[str, Any]], tensors: dict[str, tuple[int, ...]]
) -> Header:
    return Header(
        path,
        {key: kind for key, (kind, _) in metadata.items()},
        {key: value for key, (_, value) in metadata.items()},
        {name: shape + (1,) * (4 - len(shape)) for name, shape in tensors.items()},
        {name: "f16" if name in MATRICES else "f32" for name in tensors},
        dict.fromkeys(tensors, 0),
    )


def text(**changed: tuple[str, Any] | None) -> Header:
    """The language model; ``a__b`` is key ``qwen2vl.a.b``, and None takes a key away."""
    metadata = dict(TEXT)
    for name, value in changed.items():
        key = f"qwen2vl.{name.replace('__', '.')}"
        metadata.pop(key, None)
        if value is not None:
            metadata[key] = value
    return header("text.gguf", metadata, {"token_embd.weight": (64, 800)})


def tower(
    metadata: dict[str, tuple[str, Any] | None] | None = None,
    tensors: dict[str, tuple[int, ...] | None] | None = None,
) -> Header:
    """The vision tower with some keys and tensors changed, or taken away by None."""
    keys = {key: value for key, value in {**TOWER, **(metadata or {})}.items() if value}
    shapes = {name: shape for name, shape in {**TENSORS, **(tensors or {})}.items() if shape}
    return header("mmproj.gguf", keys, shapes)


def refuse_text(bad: Header, match: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"^text\.gguf: .*{match}"):
        check_text(bad)


def refuse_tower(bad: Header, match: str, of: Header | None = None) -> None:
    with pytest.raises(ModelLoadError, match=rf"^mmproj\.gguf: .*{match}"):
        check_mmproj(bad, of or text())


def test_right_headers_pass() -> None:
    check_text(text())
    check_mmproj(tower(), text())


# --- the language model ---


def test_a_vision_tower_is_no_language_model() -> None:
    with pytest.raises(ModelLoadError, match=r"mmproj\.gguf: this is a vision tower; pass it as"):
        check_text(tower())


@pytest.mark.parametrize("value", [("u32", 0), ("arr[u32]", [2, 0]), ("str", "2"), None])
def test_heads_by_which_llama_cpp_divides(value: tuple[str, Any] | None) -> None:
    def other(arch: str, more: dict[str, tuple[str, Any]]) -> Header:
        keys = {f"{arch}.attention.head_count": value, **more}
        given = {key: item for key, item in keys.items() if item is not None}
        return replace(
            text(),
            types={key: kind for key, (kind, _) in given.items()},
            metadata={"general.architecture": arch} | {key: v for key, (_, v) in given.items()},
        )

    refuse_text(other("olmo2", {}), r"olmo2\.attention\.head_count is .*; 1 and more is needed")
    sizes = ("conv_kernel", "inner_size", "state_size", "time_step_rank")
    check_text(other("mamba", {f"mamba.ssm.{name}": ("u32", 4) for name in sizes}))
    if value == ("arr[u32]", [2, 0]):  # layers without attention
        check_text(other("lfm2", {"lfm2.shortconv.l_cache": ("u32", 3)}))


def test_an_architecture_is_a_text() -> None:
    for value in ([1, 2], 3, True):
        bad = replace(text(), metadata={**text().metadata, "general.architecture": value})
        refuse_text(bad, "general.architecture is no text")


def test_architecture() -> None:
    nameless = replace(text(), types={}, metadata={})
    refuse_text(nameless, r"names no general\.architecture")
    check_text(
        replace(text(), metadata={"general.architecture": "llama", "llama.attention.head_count": 4})
    )


@pytest.mark.parametrize(
    "name",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "attention__head_count",
        "attention__head_count_kv",
    ],
)
@pytest.mark.parametrize("value", [None, ("u32", 0), ("i32", -4), ("f32", 4.0), ("bool", True)])
def test_counts_are_above_zero(name: str, value: tuple[str, Any] | None) -> None:
    refuse_text(text(**{name: value}), f"{name.split('__')[-1]} is .*; a whole number from 1 ")


def test_counts_that_llama_cpp_asserts() -> None:
    check_text(text(block_count=("u32", 512)))
    refuse_text(text(block_count=("u32", 513)), "block_count is 513")
    refuse_text(text(attention__head_count_kv=("u32", 3)), "4 heads")
    refuse_text(text(attention__head_count_kv=("u32", 8)), "4 heads")


@pytest.mark.parametrize("value", [("arr[u32]", [1]), ("str", "mean"), ("bool", True)])
def test_pooling_type(value: tuple[str, Any]) -> None:
    check_text(text(pooling_type=("u32", 3)))
    refuse_text(text(pooling_type=value), r"pooling_type is .*; a number is needed")


@pytest.mark.parametrize("window", [2**22 + 1, 2**31, 2**32 - 64, -1])
def test_a_sliding_window_fits_many_sequences(window: int) -> None:
    for legal in (0, 1, 512, 2**22):
        check_text(text(attention__sliding_window=("u32", legal)))
    bad = text(attention__sliding_window=("u32", window))
    refuse_text(bad, rf"sliding_window is {window}; 0 to 4,194,304 are supported")


@pytest.mark.parametrize("value", [("u32", 2**32 - 1), ("u32", 128), ("u32", 0), ("str", "64")])
def test_rows_are_as_wide_as_the_model(value: tuple[str, Any]) -> None:
    n_embd = text().metadata["qwen2vl.embedding_length"]
    check_text(text(embedding_length_out=("u32", n_embd)))
    refuse_text(
        text(embedding_length_out=value), r"embedding_length_out is .*; only embedding_length"
    )


def test_context_length_fits_an_int() -> None:
    check_text(text(context_length=("u32", 2**31 - 1)))
    refuse_text(text(context_length=("u32", 2**31)), "context_length is 2147483648")


def test_tokens_of_the_vocabulary_occur_once() -> None:
    key, good = "tokenizer.ggml.tokens", text()
    check_text(replace(good, metadata={**good.metadata, key: (800, 800)}))
    twice = replace(good, metadata={**good.metadata, key: (800, 797)})
    refuse_text(twice, "3 tokens of the vocabulary occur twice")


def test_heads() -> None:
    refuse_text(text(attention__head_count=("u32", 5)), "64 components cannot be split into 5")
    check_text(text(attention__key_length=("u32", 16)))
    refuse_text(text(attention__key_length=("u32", 32)), "into 4 heads of 32")
    check_text(text(rope__dimension_count=("u32", 16)))
    refuse_text(text(rope__dimension_count=("u32", 8)), "dimension_count is 8; the head has 16")


@pytest.mark.parametrize(
    "value",
    [
        None,
        ("arr[i32]", None),
        ("arr[i32]", []),
        ("arr[i32]", [2, 3, 2, 0]),
        ("arr[i32]", [16, 0, 0, 0]),
        ("arr[i32]", [-8, 8, 8, 0]),
        ("arr[i32]", [0, 0, 0, 8]),
        ("arr[i32]", [2, 3, 3, 8]),
        ("u32", 8),
    ],
)
def test_rope_sections(value: tuple[str, Any] | None) -> None:
    refuse_text(text(rope__dimension_sections=value), "dimension_sections is .* must sum to 8")


def test_three_sections_are_enough() -> None:
    check_text(text(rope__dimension_sections=("arr[i32]", [2, 3, 3])))


def test_what_other_architectures_have() -> None:
    for name in ("none", "linear", "yarn", "longrope"):
        check_text(text(rope__scaling__type=("str", name)))
    refuse_text(text(rope__scaling__type=("str", "ntk")), "type is 'ntk'; none, linear, yarn, lon")
    for name in ("expert_count", "nextn_predict_layers"):
        check_text(text(**{name: ("u32", 0)}))
        refuse_text(text(**{name: ("u32", 2)}), f"{name} is 2; 0 is supported")


@pytest.mark.parametrize(
    "value",
    [None, ("f64", 1e-6), ("u32", 1), ("f32", float("nan")), ("f32", float("inf")), ("f32", -1.0)],
)
def test_rms_epsilon(value: tuple[str, Any] | None) -> None:
    refuse_text(text(attention__layer_norm_rms_epsilon=value), "layer_norm_rms_epsilon")


# --- the vision tower ---


def test_a_language_model_is_no_vision_tower() -> None:
    with pytest.raises(ModelLoadError, match="language model of architecture 'qwen2vl', not a vis"):
        check_mmproj(text(), text())


@pytest.mark.parametrize(
    "key",
    sorted(
        key for key in TOWER if key.startswith("clip.vision.") and key != "clip.vision.n_wa_pattern"
    ),
)
def test_missing_keys(key: str) -> None:
    refuse_tower(tower({key: None}), f"{key} is missing")


@pytest.mark.parametrize("value", [None, ("bool", False)])
def test_has_a_vision_tower(value: tuple[str, Any] | None) -> None:
    refuse_tower(tower({"clip.has_vision_encoder": value}), "the file has no vision tower")


@pytest.mark.parametrize("value", [None, ("str", "ldp"), ("str", "qwen4vl_merger")])
def test_projector(value: tuple[str, Any] | None) -> None:
    named = value[1] if value else None
    refuse_tower(
        tower({"clip.projector_type": value}),
        f"projector type {named!r} is not supported; Qwen2-VL, Qwen2.5-VL, Qwen3-VL, "
        "Gemma 3, SmolVLM and Idefics3, LLaVA, InternVL, EmbeddingGemma 2 are",
    )


@pytest.mark.parametrize("key", ["clip.projector_type", "clip.vision.projector_type"])
def test_a_projector_type_that_is_no_text(key: str) -> None:
    refuse_tower(tower({key: ("arr[u32]", [1])}), rf"{key} is \[1\]; a text is needed")


def test_projector_under_its_newer_key() -> None:
    moved = {
        "clip.projector_type": None,
        "clip.vision.projector_type": TOWER["clip.projector_type"],
    }
    check_mmproj(tower(moved), text())


def test_pair() -> None:
    llama = replace(
        text(), metadata={"general.architecture": "llama", "llama.attention.head_count": 4}
    )
    refuse_tower(tower(), r"text\.gguf has architecture 'llama'", llama)
    wider = {"clip.vision.projection_dim": ("u32", 128)}
    refuse_tower(
        tower(wider, {"mm.2.weight": (128, 128), "mm.2.bias": (128,)}),
        r"gives rows of 128 numbers, the language model text\.gguf takes 64",
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.head_count", 3, "32 components cannot be split into 3 heads"),
        ("attention.head_count", 16, "32 components cannot be split into 16 heads"),
        ("attention.head_count", 0, "head_count is 0"),
        ("attention.head_dim", 8, "head_dim is 8; 32 components have 16"),
        ("spatial_merge_size", 3, "spatial_merge_size is 3; 2 is supported"),
        ("window_size", 0, "window_size is 0; a whole number"),
        ("window_size", 100, "window_size is 100; a multiple of 28"),
        ("n_wa_pattern", 0, "n_wa_pattern is 0"),
        ("patch_size", 0, "patch_size is 0"),
        ("patch_size", 16, "window_size is 112|v.patch_embd.weight has shape"),
        ("embedding_length", 0, "embedding_length is 0"),
        ("block_count", 0, "block_count is 0"),
        ("block_count", 2, r"tensor v\.blk\.1\.\S+ is missing"),
        ("block_count", 2**31 - 1, "block_count is 2147483647; at most 48 are supported"),
        ("projection_dim", 0, "projection_dim is 0"),
    ],
)
def test_numbers(key: str, value: int, message: str) -> None:
    refuse_tower(tower({f"clip.vision.{key}": ("u32", value)}), message)


def test_optional_numbers() -> None:
    more = {
        "clip.vision.spatial_merge_size": ("u32", 2),
        "clip.vision.window_size": ("u32", 56),
    }
    check_mmproj(tower(more), text())
    refuse_tower(tower({"clip.vision.n_wa_pattern": None}), "n_wa_pattern is None")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-6])
def test_vision_epsilon(value: float) -> None:
    key = "clip.vision.attention.layer_norm_epsilon"
    refuse_tower(tower({key: ("f32", value)}), key)


@pytest.mark.parametrize("name", ["image_mean", "image_std"])
@pytest.mark.parametrize(
    "values", [None, [], [0.5], [0.5, 0.5], [0.5] * 4, [0.5, float("nan"), 0.5]]
)
def test_statistics_are_three_numbers(name: str, values: list[float] | None) -> None:
    refuse_tower(tower({f"clip.vision.{name}": ("arr[f32]", values)}), name)


@pytest.mark.parametrize("value", [0.0, -0.5, float("inf")])
def test_deviations_are_above_zero(value: float) -> None:
    refuse_tower(tower({"clip.vision.image_std": ("arr[f32]", [0.5, value, 0.5])}), "image_std")


@pytest.mark.parametrize("name", ["v.patch_embd.bias", "v.class_embd"])
def test_tensors_of_another_family(name: str) -> None:
    refuse_tower(tower(tensors={name: (32,)}), f"tensor {name} has no place in this vision tower")


@pytest.mark.parametrize("name", TENSORS)
def test_missing_tensors(name: str) -> None:
    refuse_tower(tower(tensors={name: None}), "tensor .* is missing")


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_another_shape(name: str) -> None:
    *rest, last = TENSORS[name]
    refuse_tower(tower(tensors={name: (*rest, last + 1)}), r"tensor \S+ has shape .* is needed")


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "f64"])
def test_tensors_of_a_type_without_kernels(name: str, dtype: str) -> None:
    good = tower()
    bad = replace(good, dtypes={**good.dtypes, name: dtype})
    refuse_tower(bad, rf"tensor {name} has type {dtype}")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])
def test_types_of_matrices_and_vectors(dtype: str) -> None:
    good = tower()
    check_mmproj(replace(good, dtypes={**good.dtypes, **dict.fromkeys(MATRICES, dtype)}), text())
    bad = replace(good, dtypes={**good.dtypes, "mm.0.bias": dtype})
    refuse_tower(bad, rf"mm\.0\.bias has type {dtype}; f32 is needed")


def test_language_weights_of_a_type_without_kernels() -> None:
    refuse_text(replace(text(), dtypes={"token_embd.weight": "i32"}), "token_embd")


def test_flat_patch_embedding_stands_for_the_two_kernels() -> None:
    name = "v.patch_embd.weight_flat"
    without = {"v.patch_embd.weight": None, "v.patch_embd.weight.1": None}
    check_mmproj(tower(tensors={**without, name: (1176, 32)}), text())
    check_mmproj(tower(tensors={name: (1176, 32)}), text())
    refuse_tower(tower(tensors={**without, name: (588, 32)}), "weight_flat has shape")


def swapped() -> dict[str, tuple[int, ...]]:
    return {
        "v.blk.0.ffn_up.weight": (48, 32),
        "v.blk.0.ffn_up.bias": (32,),
        "v.blk.0.ffn_down.weight": (32, 48),
        "v.blk.0.ffn_down.bias": (48,),
    }


def test_old_converters_names_of_the_ffn() -> None:
    check_mmproj(tower(tensors=swapped()), text())
    refuse_tower(tower(tensors={**swapped(), "v.blk.0.ffn_down.bias": (32,)}), "ffn_down.bias has")
    refuse_tower(tower(tensors={**swapped(), "v.blk.0.ffn_up.weight": (47, 32)}), "ffn_up.weight")


def test_square_ffn_cannot_be_told_apart() -> None:
    square = dict.fromkeys(("v.blk.0.ffn_up.weight", "v.blk.0.ffn_down.weight"), (32, 32))
    refuse_tower(tower(tensors=square), r"ffn_\w+\.weight is square")


def qwen2(tensors: dict[str, tuple[int, ...] | None]) -> Header:
    keys = {"clip.projector_type": ("str", "qwen2vl_merger"), "clip.vision.n_wa_pattern": None}
    no_gate = dict.fromkeys(("v.blk.0.ffn_gate.weight", "v.blk.0.ffn_gate.bias"))
    biases = dict.fromkeys(("v.post_ln.bias", "v.blk.0.ln1.bias", "v.blk.0.ln2.bias"), (32,))
    return tower(keys, {**no_gate, **biases, **tensors})


def test_qwen2_vl_has_norm_biases_and_no_gate() -> None:
    check_mmproj(qwen2({}), text())
    for name in ("v.post_ln.bias", "v.blk.0.ln1.bias", "v.blk.0.ln2.bias"):
        refuse_tower(qwen2({name: None}), f"tensor {name} is missing")
        refuse_tower(qwen2({name: (31,)}), f"tensor {name} has shape")


# --- files ---


@pytest.mark.parametrize("name", ["qwen25_small", "qwen25_head80", "qwen2_small"])
@pytest.mark.parametrize("weight_flat", [False, True])
def test_written_models_pass(
    tiny_files: Callable[..., tuple[Path, Path]], name: str, weight_flat: bool
) -> None:
    paths = tiny_files(name, weight_flat=weight_flat)
    of_text, of_tower = (Header.of(str(path), *_core.read_gguf(path)) for path in paths)
    check_text(of_text)
    check_mmproj(of_tower, of_text)


def test_header_of_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 100)
    tensors = {"a": ("f32", (4, 1, 1, 1), 64, 80), "b": ("q8_0", (32, 2, 1, 1), 32, 100)}
    got = Header.of(str(path), {"k": ("u32", 7), "s": ("arr[str]", None)}, tensors)
    assert got.types == {"k": "u32", "s": "arr[str]"}
    assert got.metadata == {"k": 7, "s": None}
    assert got.shapes == {"a": (4, 1, 1, 1), "b": (32, 2, 1, 1)}
    assert got.dtypes == {"a": "f32", "b": "q8_0"}
    assert (got.starts, got.ends) == ({"a": 64, "b": 32}, {"a": 80, "b": 100})
    assert got.architecture == ""


def test_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 1234)
    tensors = {"a": ("f32", (4, 1, 1, 1), 1219, 1235), "b": ("f32", (4, 1, 1, 1), 64, 80)}
    with pytest.raises(ModelLoadError, match=r"cut short: it has 1,234 bytes and .* 1,235;"):
        Header.of(str(path), {}, tensors)


@pytest.mark.parametrize("shape", [(0, 1, 1, 1), (4, 0, 1, 1), (4, 2, 0, 1)])
def test_empty_tensors(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 1234)
    with pytest.raises(ModelLoadError, match=re.escape(f"tensor a has shape {shape}; it holds")):
        Header.of(str(path), {}, {"a": ("f32", shape, 80, 80)})


@pytest.mark.parametrize(
    ("content", "shown"), [(b"", "b''"), (b"GGU", "b'GGU'"), (b"%PDF-1.7", "b'%PDF'")]
)
def test_other_files(tmp_path: Path, content: bytes, shown: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=f"not a GGUF file: it starts with {shown}"):
        check_readable(str(path))


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"none\.gguf: there is no such file"):
        check_readable(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelLoadError, match="this is no file"):
        check_readable(str(tmp_path))


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelLoadError, match="cannot be opened: Permission denied"):
        check_readable(str(path))


@pytest.mark.parametrize("key", ["clip.vision.image_mean", "clip.vision.image_std"])
@pytest.mark.parametrize("value", [1e-45, 3e38])
def test_pixels_stay_in_range(key: str, value: float) -> None:
    refuse_tower(tower({key: ("arr[f32]", [0.5, 0.5, value])}), f"{key} is .* from 1e-6 to 1e6")
    check_mmproj(tower({"clip.vision.image_mean": ("arr[f32]", [0.0, -0.5, 1e6])}), text())


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "jmm.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="folder of a converted model; name one of its files"):
        check_readable(str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"such file; Embedder\.from_pretrained loads a repo"):
        check_readable("org/name")
    for path in ("org/name.gguf", "name", "/org/name"):
        with pytest.raises(ModelLoadError, match=r"there is no such file$"):
            check_readable(path)
    adapter = {**TEXT, "general.type": ("str", "adapter")}
    with pytest.raises(ModelLoadError, match=r"this is a LoRA adapter; pass it as adapters="):
        check_text(header("a.gguf", adapter, {"token_embd.weight": (64, 800)}))
