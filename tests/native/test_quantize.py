"""Files with weights of another type: their values, their keys, and the vectors that they give."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import Embedder, InputError, ModelLoadError, _core, quantize_model
from jmm.quantizer import file_types, model, plan, writer
from support import gguf_writer, golden, tiny
from support.wide import WIDE

Files = Callable[..., tuple[Path, Path]]
Pair = tuple[Path, Path]
QType = gguf.GGMLQuantizationType

PICTURES = [tiny.picture(4, 6), tiny.picture(10, 2, seed=1)]
TEXTS = ["a bar chart", "revenue by region, in millions"]

# Relative error of uniform weights, in the Euclidean norm; twice what is measured.
ERRORS = {
    QType.F32: 0,
    QType.F16: 4e-4,
    QType.BF16: 4e-3,
    QType.Q8_0: 0.01,
    QType.Q6_K: 0.03,
    QType.Q5_K: 0.05,
    QType.Q5_1: 0.05,
    QType.Q5_0: 0.06,
    QType.Q4_K: 0.1,
    QType.Q4_1: 0.1,
    QType.Q4_0: 0.12,
    QType.IQ4_NL: 0.12,
    QType.IQ4_XS: 0.12,
    QType.Q3_K: 0.25,
    QType.Q2_K: 0.5,
}
# gguf's Python code quantizes these as ggml does, bit by bit.
EXACT = (QType.F16, QType.BF16, QType.Q8_0, QType.Q4_0, QType.Q4_1, QType.Q5_0, QType.Q5_1)


@pytest.fixture(scope="session")
def wide_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """``wide_files(name, file_type="f32") -> (text, mmproj)``, quantized from the F32 files."""
    folder = tmp_path_factory.mktemp("wide")

    @lru_cache
    def files(name: str, file_type: str = "f32") -> Pair:
        text, mmproj = (folder / f"{name}-{file_type}-{part}.gguf" for part in ("text", "mmproj"))
        if file_type == "f32":
            weights = tiny.weights(WIDE[name])
            gguf_writer.write_mmproj(WIDE[name], weights, mmproj)
            gguf_writer.write_text(WIDE[name], weights, text)
        else:
            for source, target in zip(files(name), (text, mmproj), strict=True):
                quantize_model(source, target, file_type, n_threads=2)
        return text, mmproj

    return files


def tensors(path: Path) -> dict[str, tuple[QType, NDArray[Any]]]:
    """Types and raw rows."""
    return {t.name: (t.tensor_type, t.data) for t in gguf.GGUFReader(path).tensors}


def types(path: Path) -> dict[str, str]:
    return {name: kind.name.lower() for name, (kind, _) in tensors(path).items()}


def values(path: Path) -> dict[str, NDArray[np.float32]]:
    return {
        name: gguf.quants.dequantize(data, kind) for name, (kind, data) in tensors(path).items()
    }


def widened(value: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.pad(value, [(0, new - old) for old, new in zip(value.shape, shape, strict=True)])


def vectors(text: Path, mmproj: Path) -> NDArray[np.float32]:
    with Embedder(text, mmproj, n_threads=1) as embedder:
        return np.concatenate([embedder.encode_images(PICTURES), embedder.encode_query(TEXTS)])


# --- values ---


ALL = [("wide25", file_type) for file_type in file_types()[1:]]
ALL += [("wide2", file_type) for file_type in ("bf16", "q4_k_m")]


@pytest.mark.parametrize("part", ["text", "mmproj"])
@pytest.mark.parametrize(("name", "file_type"), ALL)
def test_values(file_type: str, name: str, part: str, wide_files: Files) -> None:
    source, made = (wide_files(name, kind)[part == "mmproj"] for kind in ("f32", file_type))
    old, new = values(source), values(made)
    assert list(new) == list(old)
    n_exact = 0
    for tensor, (kind, data) in tensors(made).items():
        wanted = widened(old[tensor], new[tensor].shape)
        error = np.linalg.norm(new[tensor] - wanted)
        assert error <= ERRORS[kind] * np.linalg.norm(wanted), tensor
        # Rows of zeros are zeros in every type, and what they meet in ffn_down does not matter.
        assert not new[tensor][len(old[tensor]) :].any(), tensor
        if kind in EXACT:
            n_exact += 1
            assert np.array_equal(data, gguf.quants.quantize(wanted, kind)), tensor
    base = plan.FILE_TYPES[file_type][1]
    n_base = list(types(made).values()).count(base.lower())
    assert n_base >= 8
    if QType[base.upper()] in EXACT:
        assert n_exact >= n_base


@pytest.mark.parametrize("file_type", ["F16", "BF16"])
def test_half_precision_sources(file_type: str, tiny_files: Files, tmp_path: Path) -> None:
    for number, source in enumerate(tiny_files("qwen25_small", file_type)):
        quantize_model(source, tmp_path / f"{number}.gguf", "q8_0")
        quantize_model(source, tmp_path / f"{number}-f32.gguf", "f32")
        old, new = values(source), tensors(tmp_path / f"{number}.gguf")
        assert sum(kind == QType.Q8_0 for kind, _ in new.values()) >= 20
        for name, (kind, data) in new.items():
            if kind == QType.Q8_0:
                assert np.array_equal(data, gguf.quants.quantize(old[name], kind)), name
        for name, (kind, data) in tensors(tmp_path / f"{number}-f32.gguf").items():
            assert kind == QType.F32
            assert np.array_equal(data, old[name]), name


def test_threads_and_pieces_change_nothing(
    wide_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for n_threads, piece in ((1, writer.PIECE), (4, writer.PIECE), (3, 1)):
        monkeypatch.setattr(writer, "PIECE", piece)
        path = tmp_path / f"{n_threads}.gguf"
        made_of = quantize_model(wide_files("wide25")[1], path, "q8_0", n_threads=n_threads)
        assert made_of.tensor_types == Counter(types(path).values())
        made.append(path.read_bytes())
    assert made[0] == made[1] == made[2]


# --- choices ---

# What llama_model_quantize of the pinned tree makes of wide25's language model: the type of most
# tensors, then of the others, in the order of layers.
CHOICES = {
    "q8_0": ("q8_0", {}),
    "q6_k": ("q6_k", {}),
    "q5_k_m": ("q5_k", {"attn_v": "6..6..66", "ffn_down": "6..6..66"}),
    "q5_k_s": ("q5_k", {}),
    "q5_1": ("q5_1", {}),
    "q4_k_m": ("q4_k", {"attn_v": "6..6..66", "ffn_down": "6..6..66"}),
    "q4_k_s": ("q4_k", {"attn_v": "5555....", "ffn_down": "5......."}),
    "q4_0": ("q4_0", {}),
    "iq4_nl": ("iq4_nl", {"attn_v": "55555555", "ffn_down": "5......."}),
    "iq4_xs": ("iq4_xs", {"attn_v": "55555555", "ffn_down": "5......."}),
    "q3_k_l": ("q3_k", {"attn_v": "55555555", "ffn_down": "55555555", "attn_output": "55555555"}),
    "q3_k_m": ("q3_k", {"attn_v": "55444444", "ffn_down": "44444444", "attn_output": "44444444"}),
    "q3_k_s": ("q3_k", {}),
    "q2_k": ("q2_k", {"attn_v": "44444444", "ffn_down": "33333333", "attn_output": "33333333"}),
}


@pytest.mark.parametrize("file_type", CHOICES)
def test_types_of_a_mixture(file_type: str, wide_files: Files) -> None:
    base, others = CHOICES[file_type]
    found = types(wide_files("wide25", file_type)[0])
    assert found["token_embd.weight"] == base
    assert found["output.weight"] == ("q8_0" if base == "q8_0" else "q6_k")
    for module in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down"):
        for layer, digit in enumerate(others.get(module, "." * 8)):
            wanted = base if digit == "." else f"q{digit}_k"
            assert found[f"blk.{layer}.{module}.weight"] == wanted, (module, layer)


def test_the_tied_output_counts_as_one(wide_files: Files, tmp_path: Path) -> None:
    quantize_model(wide_files("wide2")[0], tmp_path / "out.gguf", "q4_0")
    assert types(tmp_path / "out.gguf")["token_embd.weight"] == "q6_k"


def test_a_tower_is_a_mixture_as_well(wide_files: Files) -> None:
    """By the rule for language models: the last of two layers has more bits."""
    found = types(wide_files("wide25", "q4_k_m")[1])
    for module in ("attn_v", "ffn_down"):
        kinds = [found[f"v.blk.{layer}.{module}.weight"] for layer in (0, 1)]
        assert kinds == ["q4_k", "q6_k"]
    assert found["mm.0.weight"] == found["v.blk.1.ffn_up.weight"] == "q4_k"


def test_blocks_of_32_that_would_mix_in_blocks_of_256(tiny_files: Files, tmp_path: Path) -> None:
    """llama.cpp's own fallback is taken: the output gets more bits, not fewer."""
    quantize_model(tiny_files("qwen25_small")[0], tmp_path / "out.gguf", "q4_0")
    assert types(tmp_path / "out.gguf")["output.weight"] == "q8_0"


@pytest.mark.parametrize("file_type", ["q8_0", "bf16", "f16"])
def test_the_projector_stays(
    file_type: str, tiny_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of late interaction, which is read as floats."""

    def with_projector(weights: tiny.Weights, weight_flat: bool = False) -> Iterator[Any]:
        yield from plain_tensors(weights, weight_flat)
        yield "multi_vector_projector.weight", np.ones((32, 64), np.float32)

    monkeypatch.setattr(gguf_writer, "vision_tensors", with_projector)
    source = gguf_writer.write_mmproj(
        tiny.MODELS["qwen25_small"], golden.weights("qwen25_small"), tmp_path / "in.gguf"
    )
    old = types(source)["multi_vector_projector.weight"]
    quantize_model(source, tmp_path / "out.gguf", file_type)
    assert types(tmp_path / "out.gguf")["multi_vector_projector.weight"] == old


def test_what_stays(wide_files: Files) -> None:
    """Biases, norms and the patch embedding; all other matrices of a tower are converted."""
    for name, file_type in (("wide25", "q8_0"), ("wide2", "q4_k_m")):
        for tensor, kind in types(wide_files(name, file_type)[1]).items():
            stays = tensor.endswith(".bias") or ".ln" in tensor or "post_ln" in tensor
            stays |= "patch_embd" in tensor
            assert (kind == "f32") == stays, tensor


# --- padding ---


def swapped(weights: tiny.Weights, weight_flat: bool = False) -> Iterator[Any]:
    names = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    for name, value in plain_tensors(weights, weight_flat):
        *front, module, kind = name.split(".")
        yield ".".join([*front, names.get(module, module), kind]), value


plain_tensors = gguf_writer.vision_tensors


def padded(source: Path, target: Path, multiple: int) -> None:
    """As `quantize_model` would, if F32 had blocks of ``multiple``."""
    header, found = model._read(str(source))
    wanted = plan.make_plan(header, found, "f32", ffn_multiple=multiple)
    with source.open("rb") as reading, target.open("wb") as writing:
        writer.write(reading, writing, wanted, found.alignment, 2, lambda _: None)


@pytest.mark.parametrize("order", ["plain", "swapped"])
@pytest.mark.parametrize(
    ("name", "multiple"), [("qwen25_head80", 32), ("qwen25_head80", 256), ("qwen2_small", 256)]
)
def test_padding_is_exact(
    name: str,
    multiple: int,
    order: str,
    tiny_files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, mmproj = tiny_files(name)
    if order == "swapped":
        monkeypatch.setattr(gguf_writer, "vision_tensors", swapped)
        mmproj = gguf_writer.write_mmproj(
            tiny.MODELS[name], golden.weights(name), tmp_path / "swapped.gguf"
        )
    width = tiny.MODELS[name].v_ffn
    padded(mmproj, tmp_path / "padded.gguf", multiple)
    new = -(-width // multiple) * multiple
    shapes = {name: value.shape for name, value in values(tmp_path / "padded.gguf").items()}
    v_hidden = tiny.MODELS[name].v_hidden
    up, down = ("up", "down") if order == "plain" else ("down", "up")
    assert shapes[f"v.blk.1.ffn_{up}.weight"] == (new, v_hidden)
    assert shapes[f"v.blk.1.ffn_{up}.bias"] == (new,)
    assert shapes[f"v.blk.1.ffn_{down}.weight"] == (v_hidden, new)
    assert shapes[f"v.blk.1.ffn_{down}.bias"] == (v_hidden,)
    np.testing.assert_allclose(
        vectors(text, tmp_path / "padded.gguf"), vectors(text, mmproj), atol=1e-6, rtol=0
    )


def write_text(path: Path, name: str, lengths: list[int] | None = None) -> Path:
    """The language model; with ``lengths``, layers cut to them and a key that lists them."""
    weights = dict(golden.weights(name))
    for layer, length in enumerate(lengths or []):
        for part, cut in (
            ("gate", np.s_[:length]),
            ("up", np.s_[:length]),
            ("down", np.s_[:, :length]),
        ):
            key = f"model.language_model.layers.{layer}.mlp.{part}_proj.weight"
            weights[key] = np.ascontiguousarray(weights[key][cut])
    add = gguf.GGUFWriter.add_feed_forward_length
    with pytest.MonkeyPatch.context() as patch:
        if lengths:
            patch.setattr(
                gguf.GGUFWriter, "add_feed_forward_length", lambda self, _: add(self, lengths)
            )
        return gguf_writer.write_text(tiny.MODELS[name], weights, path)


@pytest.mark.parametrize("lengths", [None, [172, 172]], ids=["one key", "a key per layer"])
@pytest.mark.parametrize("multiple", [32, 256])
def test_padding_of_a_language_model_is_exact(
    multiple: int, lengths: list[int] | None, tiny_files: Files, tmp_path: Path
) -> None:
    text = write_text(tmp_path / "text.gguf", "qwen25_head80", lengths)
    mmproj = tiny_files("qwen25_head80")[1]
    padded(text, tmp_path / "padded.gguf", multiple)
    new = -(-172 // multiple) * multiple
    shapes = {name: value.shape for name, value in values(tmp_path / "padded.gguf").items()}
    for part in ("up", "gate"):
        assert shapes[f"blk.1.ffn_{part}.weight"] == (new, 96)
    assert shapes["blk.1.ffn_down.weight"] == (96, new)
    field = gguf.GGUFReader(tmp_path / "padded.gguf").fields["qwen2vl.feed_forward_length"]
    assert field.contents() == (new if lengths is None else [new, new])
    np.testing.assert_allclose(
        vectors(tmp_path / "padded.gguf", mmproj), vectors(text, mmproj), atol=1e-6, rtol=0
    )


def test_layers_of_different_widths(tmp_path: Path) -> None:
    source = write_text(tmp_path / "in.gguf", "qwen25_head80", [172, 64])
    made = quantize_model(source, tmp_path / "out.gguf", "q8_0")
    assert made.ffn_length == (172, 192)
    assert values(made.path)["blk.0.ffn_up.weight"].shape == (192, 96)
    assert values(made.path)["blk.1.ffn_down.weight"].shape == (96, 64)
    fields = gguf.GGUFReader(made.path).fields
    assert fields["qwen2vl.feed_forward_length"].contents() == [192, 64]


def test_a_padded_language_model_runs(tiny_files: Files, tmp_path: Path) -> None:
    text, mmproj = tiny_files("qwen25_head80")
    made = quantize_model(text, tmp_path / "out.gguf", "q8_0")
    assert made.ffn_length == (172, 192)
    assert not {kind for kind in types(made.path).values() if kind not in ("f32", "q8_0")}
    assert (vectors(made.path, mmproj) * vectors(text, mmproj)).sum(axis=1).min() > 0.999


@pytest.mark.parametrize("why", ["graph", "inner norm", "experts", "fused", "key"])
def test_language_models_that_cannot_be_padded(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, extra = golden.weights("qwen25_head80"), {}
    if why == "inner norm":
        extra = {"blk.0.ffn_sub_norm.weight": (np.ones(172, np.float32), "F32")}
    elif why == "experts":
        extra = {"blk.0.ffn_up_exps.weight": (np.ones((2, 160, 96), np.float32), "F32")}
    elif why == "fused":
        weights = dict(weights)
        name = "model.language_model.layers.1.mlp.up_proj.weight"
        weights[name] = np.concatenate([weights[name]] * 2)
    elif why == "key":
        add = gguf.GGUFWriter.add_feed_forward_length
        monkeypatch.setattr(
            gguf.GGUFWriter, "add_feed_forward_length", lambda self, _: add(self, 160)
        )
    model = tiny.MODELS["qwen25_head80"]
    source = gguf_writer.write_text(model, weights, tmp_path / "in.gguf", extra=extra)
    if why == "graph":  # which keeps the greatest of the inner row alone
        source.write_bytes(source.read_bytes().replace(b"qwen2vl", b"gemma3n"))
    refuse(source, tmp_path, "q8_0", r"blk\.[01]\.ffn_down\.weight .* no multiple of 32")


@pytest.mark.parametrize(
    ("name", "file_type", "length", "key"),
    [
        ("wide25", "q8_0", 320, 320),
        ("wide25", "iq4_xs", 512, 512),
        ("wide25", "bf16", None, 300),
        ("wide2", "q4_k_m", 512, 256),  # the converter writes another number there
    ],
)
def test_padded_length(
    name: str,
    file_type: str,
    length: int | None,
    key: int,
    wide_files: Files,
    tmp_path: Path,
) -> None:
    made = quantize_model(wide_files(name)[1], tmp_path / "out.gguf", file_type)
    assert made.ffn_length == (None if length is None else (300, length))
    assert values(made.path)["v.blk.0.ffn_up.bias"].shape == (length or 300,)
    field = gguf.GGUFReader(made.path).fields["clip.vision.feed_forward_length"]
    assert field.contents() == key


# --- vectors ---

# Least cosine to the F32 files' vectors, for random weights.
COSINES = {"f": 0.9999, "b": 0.9999, "q8": 0.999, "q6": 0.995, "q5": 0.985, "q4": 0.93}
COSINES |= {"iq4": 0.93, "q3": 0.8, "q2": 0.6}


@pytest.mark.parametrize(("name", "file_type"), ALL)
def test_vectors(file_type: str, name: str, wide_files: Files) -> None:
    wanted, found = vectors(*wide_files(name)), vectors(*wide_files(name, file_type))
    least = next(value for prefix, value in COSINES.items() if file_type.startswith(prefix))
    cosines = (found * wanted).sum(axis=1)
    assert cosines.min() > least
    assert not np.array_equal(found, wanted)


# --- keys ---

ARRAYS = {
    "odd.u8": ([0, 255], gguf.GGUFValueType.UINT8),
    "odd.i8": ([-128, 127], gguf.GGUFValueType.INT8),
    "odd.u16": ([65535], gguf.GGUFValueType.UINT16),
    "odd.i16": ([-1], gguf.GGUFValueType.INT16),
    "odd.i32": (list(range(5000)), gguf.GGUFValueType.INT32),
    "odd.u64": ([2**63], gguf.GGUFValueType.UINT64),
    "odd.f64": ([1e300, 0.1], gguf.GGUFValueType.FLOAT64),
    "odd.bool": ([True, False], gguf.GGUFValueType.BOOL),
    "odd.str": (["", "a\0b", "å"], gguf.GGUFValueType.STRING),
}


def raw_fields(path: Path) -> dict[str, list[bytes]]:
    return {
        name: [bytes(part) for part in field.parts]
        for name, field in gguf.GGUFReader(path).fields.items()
        if not name.startswith("GGUF.")
    }


@pytest.mark.parametrize("alignment", [32, 64])
@pytest.mark.parametrize("part", ["text", "mmproj"])
def test_keys_are_kept(
    part: str, alignment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = gguf_writer.begin

    def begin_oddly(*args: Any) -> Any:
        into = begin(*args)
        for name, (items, kind) in ARRAYS.items():
            into.add_key_value(name, items, gguf.GGUFValueType.ARRAY, sub_type=kind)
        into.add_key_value("odd.nul", "a\0b", gguf.GGUFValueType.STRING)
        into.add_key_value("odd.empty", "", gguf.GGUFValueType.STRING)
        into.add_key_value("odd.f32", float("nan"), gguf.GGUFValueType.FLOAT32)
        into.add_key_value("odd.i64", -(2**63), gguf.GGUFValueType.INT64)
        if alignment != 32:
            into.add_custom_alignment(alignment)
        return into

    monkeypatch.setattr(gguf_writer, "begin", begin_oddly)
    write = gguf_writer.write_text if part == "text" else gguf_writer.write_mmproj
    source = write(tiny.MODELS["qwen25_small"], golden.weights("qwen25_small"), tmp_path / "in")
    made = quantize_model(source, tmp_path / "out", "q8_0")
    old, new = raw_fields(source), raw_fields(made.path)
    assert "odd.str" in old
    assert list(new) == list(old)
    changed = {name for name in old if old[name] != new[name]}
    assert changed == {"general.file_type"}
    reader = gguf.GGUFReader(made.path)
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    version = reader.fields["general.quantization_version"]
    assert version.contents() == gguf.GGML_QUANT_VERSION
    assert {tensor.data_offset % alignment for tensor in reader.tensors} == {0}
    assert made.path.stat().st_size % alignment == 0
    assert made.path.stat().st_size == made.n_bytes
    _core.read_gguf(made.path)


def test_keys_that_were_missing_are_added(
    tiny_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("add_file_type", "add_quantization_version"):
        monkeypatch.setattr(gguf.GGUFWriter, name, lambda *_: None)
    source = gguf_writer.write_mmproj(
        tiny.MODELS["qwen2_small"], golden.weights("qwen2_small"), tmp_path / "in"
    )
    made = quantize_model(source, tmp_path / "out", "bf16")
    fields = gguf.GGUFReader(made.path).fields
    assert fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_BF16
    assert fields["general.quantization_version"].contents() == gguf.GGML_QUANT_VERSION


@pytest.mark.parametrize("file_type", file_types())
def test_numbers_of_file_types(file_type: str) -> None:
    prefix = "ALL" if file_type == "f32" else "MOSTLY"
    number, base = plan.FILE_TYPES[file_type]
    assert number == gguf.LlamaFileType[f"{prefix}_{file_type.upper()}"]
    assert file_type.startswith(base.lower())


def test_tensor_types_are_those_of_gguf() -> None:
    for kind in ERRORS:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        name = kind.name.lower().replace("_k", "_K")
        assert _core.tensor_types()[name] == (kind, block, size)


# --- refusals ---


def refuse(source: Path, tmp_path: Path, file_type: str, match: str, **options: Any) -> None:
    target = tmp_path / "refused.gguf"
    with pytest.raises(InputError, match=match):
        quantize_model(source, target, file_type, **options)
    assert not target.exists()
    assert not list(tmp_path.glob("refused.gguf*"))


@pytest.mark.parametrize(
    ("name", "part", "file_type", "tensor", "shape", "rest"),
    [
        ("qwen25_small", 0, "q4_k_m", "token_embd.weight", [64, 803], "no multiple of 256"),
        ("qwen25_small", 1, "q6_k", "v.blk.0.attn_q.weight", [64, 64], "no multiple of 256"),
        ("qwen25_head80", 1, "iq4_xs", "v.blk.0.attn_q.weight", [160, 160], "multiple of 256"),
        ("qwen25_head80", 0, "iq4_xs", "token_embd.weight", [96, 803], "no multiple of 256"),
    ],
)
def test_a_type_that_cannot_hold_the_rows(
    name: str,
    part: int,
    file_type: str,
    tensor: str,
    shape: list[int],
    rest: str,
    tiny_files: Files,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError) as caught:
        quantize_model(tiny_files(name)[part], tmp_path / "out.gguf", file_type)
    message = str(caught.value)
    assert f"{file_type} cannot hold tensor {tensor} of shape " in message
    assert rest in message
    others = message.rpartition("; ")[2].removesuffix(" can hold the model").split(", ")
    assert others[:3] == ["f32", "bf16", "f16"]
    for other in others[1:]:
        quantize_model(tiny_files(name)[part], tmp_path / f"{other}.gguf", other)
    for other in set(file_types()) - set(others):
        refuse(tiny_files(name)[part], tmp_path, other, "cannot hold tensor")


def test_quantized_sources(tiny_files: Files, tmp_path: Path) -> None:
    source = tiny_files("qwen25_small", "Q8_0")[1]
    refuse(source, tmp_path, "q4_0", r"v\.blk\.0\..* is quantized already, as q8_0")
    refuse(source, tmp_path, "f32", "is quantized already")
    refuse(source, tmp_path, "q8_0", "there is nothing to convert to q8_0", allow_requantize=True)
    made = quantize_model(source, tmp_path / "out.gguf", "q4_0", allow_requantize=True)
    old = values(source)
    for name, (kind, data) in tensors(made.path).items():
        if kind == QType.Q4_0:
            assert np.array_equal(data, gguf.quants.quantize(old[name], kind)), name


def test_nothing_to_convert(tiny_files: Files, tmp_path: Path) -> None:
    refuse(tiny_files("qwen25_small")[0], tmp_path, "f32", "there is nothing to convert to f32")
    source = tiny_files("qwen25_small", "BF16")[0]
    refuse(source, tmp_path, "bf16", "there is nothing to convert to bf16")


def test_arguments(tiny_files: Files, tmp_path: Path) -> None:
    source = tiny_files("qwen25_small")[0]
    refuse(source, tmp_path, "q9_0", "file_type is 'q9_0'; allowed are f32, bf16")
    refuse(source, tmp_path, "q8_0", "n_threads is 0", n_threads=0)
    refuse(source, tmp_path, "q8_0", "n_threads is 'two'", n_threads="two")
    others: list[Any] = [None, 8, ["q8_0"], {"q8_0"}, b"q8_0"]
    for file_type in others:
        refuse(source, tmp_path, file_type, "file_type is .*; allowed are f32, bf16")
    targets: list[Any] = [None, 3, ["out.gguf"], "a\0b", b"a\0b", "a\ud800b", open]
    for target in targets:
        with pytest.raises(InputError, match=r"^target is .*; the path of a file is needed$"):
            quantize_model(source, target)
    with pytest.raises(InputError, match="a model is the path"):
        quantize_model(None, tmp_path / "out.gguf")  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match=r"no such file|cannot be opened"):
        quantize_model("a\0b", tmp_path / "out.gguf")
    assert quantize_model(source, str(tmp_path / "å.gguf").encode()).path.is_file()


def test_a_target_that_comes_meanwhile_stays(tiny_files: Files, tmp_path: Path) -> None:
    """Another run's, or the user's: it is looked for again when the file gets its name."""
    source, target = tiny_files("qwen25_small")[0], tmp_path / "out.gguf"
    convert = writer.write

    def slow(*args: Any, **options: Any) -> Any:
        target.write_text("mine")
        return convert(*args, **options)

    with (
        mock.patch.object(writer, "write", slow),
        pytest.raises(InputError, match="it exists already; pass overwrite=True"),
    ):
        quantize_model(source, target, "q8_0")
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_that_leads_nowhere_stays(tiny_files: Files, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(tmp_path / "none.gguf")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="it exists already"):
            quantize_model(tiny_files("qwen25_small")[0], link, "q8_0", overwrite=overwrite)
    assert link.is_symlink()


def test_targets(tiny_files: Files, tmp_path: Path) -> None:
    source = tmp_path / "in.gguf"
    source.write_bytes(tiny_files("qwen25_small")[0].read_bytes())
    before = source.read_bytes()
    link, taken = tmp_path / "link.gguf", tmp_path / "taken.gguf"
    link.symlink_to(source)
    taken.write_text("mine")

    def attempt(target: Path, match: str, **options: Any) -> None:
        with pytest.raises(InputError, match=match):
            quantize_model(source, target, "q8_0", **options)

    for target in (source, link, tmp_path / "." / "in.gguf"):
        attempt(target, "this is the source itself", overwrite=True)
        attempt(target, "this is the source itself")
    attempt(taken, "it exists already; pass overwrite=True")
    attempt(tmp_path, "it exists already; no file", overwrite=True)
    attempt(tmp_path / "none" / "out.gguf", "there is no folder")
    assert taken.read_text() == "mine"
    assert source.read_bytes() == before
    quantize_model(source, taken, "q8_0", overwrite=True)
    assert types(taken)["token_embd.weight"] == "q8_0"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.gguf",
        "link.gguf",
        "taken.gguf",
    ]


@pytest.mark.parametrize("name", ["n" * 255, "-x", "line\nbreak", "%s{0}", os.fsdecode(b"\xff")])
def test_any_name_of_a_target(name: str, tiny_files: Files, tmp_path: Path) -> None:
    for overwrite in (False, True):
        quantize_model(tiny_files("qwen25_small")[1], tmp_path / name, overwrite=overwrite)
        assert os.listdir(tmp_path) == [name]


def test_a_folder_that_is_for_writing_alone(
    tiny_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("os.open", refuse)
    made = quantize_model(tiny_files("qwen25_small")[1], tmp_path / "out.gguf")
    assert made.path.stat().st_size == made.n_bytes


def test_sources(tiny_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.gguf"

    def attempt(source: Path, match: str) -> None:
        with pytest.raises(ModelLoadError, match=match):
            quantize_model(source, target)
        assert not target.exists()

    text, mmproj = tiny_files("qwen25_small")
    attempt(tmp_path / "none.gguf", "there is no such file")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(20))
    attempt(damaged, "not a readable GGUF file|no tensors")
    damaged.write_bytes(mmproj.read_bytes()[:-100])
    attempt(damaged, "cut short")
    damaged.write_bytes(mmproj.read_bytes().replace(b"qwen2.5vl_merger", b"qwen2.5vl_murder"))
    attempt(damaged, "projector type 'qwen2.5vl_murder' is not supported")
    damaged.write_bytes(text.read_bytes().replace(b"qwen2vl", b"qwen9vl"))
    with pytest.raises(InputError, match=r"llama\.cpp chooses no types .* architecture"):
        quantize_model(damaged, target)
    begin = gguf_writer.begin

    def begin_split(*args: Any) -> Any:
        into = begin(*args)
        into.add_uint16("split.count", 3)
        return into

    monkeypatch.setattr(gguf_writer, "begin", begin_split)
    gguf_writer.write_text(tiny.MODELS["qwen25_small"], golden.weights("qwen25_small"), damaged)
    attempt(damaged, "one of 3 parts")


@pytest.mark.parametrize(
    ("value", "file_type", "match"),
    [
        (np.nan, "q8_0", "holds NaN or infinity"),
        (-np.inf, "q4_0", "holds NaN or infinity"),
        (np.inf, "bf16", "holds NaN or infinity"),
        (-7e4, "f16", r"holds a weight of magnitude 70000; f16 holds 65504 at most"),
        (7e4, "q4_1", "holds a weight of magnitude 70000; q4_1 holds 65504"),
        (3.4e38, "bf16", "holds a weight of magnitude"),
        (3.3e38, "bf16", None),
        (65504, "f16", None),
        (-65504, "q8_0", None),
    ],
)
def test_weights_that_a_type_cannot_hold(
    value: float, file_type: str, match: str | None, tmp_path: Path
) -> None:
    weights = dict(golden.weights("qwen25_small"))
    name = "model.visual.merger.mlp.2.weight"  # the last of the file
    weights[name] = weights[name].copy()
    weights[name][-1, -1] = value
    source = gguf_writer.write_mmproj(tiny.MODELS["qwen25_small"], weights, tmp_path / "in.gguf")
    target = tmp_path / "out.gguf"
    target.write_text("before")
    if match is None:
        quantize_model(source, target, file_type, overwrite=True)
        assert np.isfinite(values(target)["mm.2.weight"]).all()
        assert values(target)["mm.2.weight"][-1, -1] == pytest.approx(value, rel=1e-2)
    else:
        with pytest.raises(ModelLoadError, match=rf"tensor mm\.2\.weight {match}"):
            quantize_model(source, target, file_type, overwrite=True)
        assert target.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"in.gguf", "out.gguf"}


def test_rows_that_do_not_match() -> None:
    f32 = _core.tensor_types()["f32"][0]
    four, five = np.zeros(16, np.uint8), np.zeros(20, np.uint8)
    for old, new in ((4, 5), (5, 4), (3, 4)):
        with pytest.raises(InputError, match="do not hold the same rows"):
            _core.convert_rows(four, f32, old, four, f32, new, 1.0)
    with pytest.raises(InputError, match="do not hold the same rows"):
        _core.convert_rows(four, f32, 5, five, f32, 4, 1.0)
    assert _core.convert_rows(four, f32, 4, five, f32, 5, 1.0) == 0
