"""`jmm doctor` names the weight, the layer and the operation where a number was lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from PIL import Image

from jmm import Embedder, NonFiniteError, _core, doctor, files
from jmm.cli import main
from jmm.doctor import weights
from jmm.doctor.graph import MERGER, TEXT, VISION, nodes_of
from support import extras, family, family_golden, gguf_writer, golden, qwen3, tiny, vision_family

MODEL = tiny.MODELS["qwen25_small"]
LANGUAGE, VISUAL = "model.language_model.", "model.visual."
WORD = "z"
TOKEN = MODEL.vocab.tokens.index(WORD)

PICTURE = tiny.picture(8, 6)

Change = tuple[str, object, object]


def write(folder: Path, *changes: Change, file_type: gguf_writer.FileType = "F32") -> list[Path]:
    """The model with parameters written over: ``(parameter, index, value)``."""
    weights = {name: array.copy() for name, array in golden.weights(MODEL.name).items()}
    for name, index, value in changes:
        weights[name][index] = value
    return [
        gguf_writer.write_text(MODEL, weights, folder / "text.gguf", file_type),
        gguf_writer.write_mmproj(MODEL, weights, folder / "mmproj.gguf", file_type),
    ]


# The parameter and its place; the tensor's name in the file; where its values are first read.
POISONED = [
    ("layers.1.mlp.down_proj.weight", (3, 5), "blk.1.ffn_down.weight", "MUL_MAT", TEXT, 1),
    ("layers.0.mlp.gate_proj.weight", (3, 5), "blk.0.ffn_gate.weight", "MUL_MAT", TEXT, 0),
    ("layers.2.self_attn.o_proj.weight", (3, 5), "blk.2.attn_output.weight", "MUL_MAT", TEXT, 2),
    ("layers.2.self_attn.k_proj.bias", 7, "blk.2.attn_k.bias", "ADD", TEXT, 2),
    ("layers.1.input_layernorm.weight", 7, "blk.1.attn_norm.weight", "MUL", TEXT, 1),
    ("norm.weight", 7, "output_norm.weight", "MUL", TEXT, None),
    ("blocks.2.mlp.up_proj.weight", (3, 5), "v.blk.2.ffn_up.weight", "MUL_MAT", VISION, 2),
    ("blocks.3.mlp.down_proj.bias", 7, "v.blk.3.ffn_down.bias", "ADD", VISION, 3),
    ("blocks.1.attn.qkv.weight", (3, 5), "v.blk.1.attn_q.weight", "MUL_MAT", VISION, 1),
    ("blocks.0.norm2.weight", 7, "v.blk.0.ln2.weight", "MUL", VISION, 0),
    ("merger.ln_q.weight", 7, "v.post_ln.weight", "MUL", VISION, None),
    ("merger.mlp.0.weight", (3, 5), "mm.0.weight", "MUL_MAT", MERGER, None),
    ("merger.mlp.2.bias", 7, "mm.2.bias", "ADD", MERGER, None),
]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("parameter", "index", "tensor", "operation", "part", "layer"), POISONED, ids=lambda v: str(v)
)
def test_a_weight_that_is_not_finite(
    parameter: str,
    index: object,
    tensor: str,
    operation: str,
    part: str,
    layer: int | None,
    value: float,
    tmp_path: Path,
) -> None:
    prefix = LANGUAGE if part == TEXT else VISUAL
    paths = write(tmp_path, (prefix + parameter, index, value))
    found = doctor.examine(*paths, n_threads=1)
    (bad,) = found.bad_tensors
    assert (bad.file, bad.name) == (str(paths[part != TEXT]), tensor)
    assert bad.first == (index if isinstance(index, tuple) else (index,))
    assert (bad.n_nan, bad.n_inf) == ((1, 0) if np.isnan(value) else (0, 1))
    text, picture = found.runs
    assert (text.fault is None) == text.is_finite == (part != TEXT)
    for run in (picture,) if part != TEXT else (text, picture):
        assert run.fault is not None
        assert not run.is_finite
        assert (run.fault.part, run.fault.layer) == (part, layer)
        assert (run.fault.operation, run.fault.weights) == (operation, (tensor,))
    assert not found.is_healthy
    assert f"since {tensor} holds such" in found.findings[-1]


@pytest.mark.parametrize("name", ["patch_embed.proj.weight"])
def test_the_patch_embedding(name: str, tmp_path: Path) -> None:
    """Its two tensors are joined when they are loaded."""
    paths = write(tmp_path, (f"{VISUAL}{name}", (1, 2, 1, 3, 4), np.nan))
    found = doctor.examine(*paths, n_threads=1)
    assert [bad.name for bad in found.bad_tensors] == ["v.patch_embd.weight.1"]
    assert found.bad_tensors[0].first == (1, 2, 3, 4)
    fault = found.runs[-1].fault
    assert fault is not None
    assert (fault.part, fault.layer) == (VISION, None)
    assert "since v.patch_embd.weight.1 holds such" in found.findings[-1]


def test_the_item_that_reads_it_is_named(tmp_path: Path) -> None:
    paths = write(tmp_path, (f"{LANGUAGE}embed_tokens.weight", (TOKEN, 5), np.nan))
    found = doctor.examine(*paths, n_threads=1, texts=["a b c", f"a {WORD} c"])
    assert [bad.first for bad in found.bad_tensors] == [(TOKEN, 5)]
    bad = [run.item for run in found.runs if not run.is_finite]
    assert bad == [f"text 'a {WORD} c'"]
    (fault,) = [run.fault for run in found.runs if run.fault is not None]
    assert (fault.operation, fault.weights) == ("GET_ROWS", ("token_embd.weight",))
    assert (fault.part, fault.layer, fault.n_nan) == (TEXT, None, 1)


def test_the_projector(tmp_path: Path) -> None:
    """It is refused when the model is loaded; the weights are looked at all the same."""
    projector = extras.projector(MODEL)
    weights = projector.tensors()
    values, dtype = weights[extras.WEIGHT]
    spoilt = values.copy()
    spoilt[3, 5] = np.nan
    extra = {**weights, extras.WEIGHT: (spoilt, dtype)}
    plain = golden.weights(MODEL.name)
    text = gguf_writer.write_text(MODEL, plain, tmp_path / "text.gguf", extra=extra)
    found = doctor.examine(text, n_threads=1)
    assert [(bad.name, bad.first) for bad in found.bad_tensors] == [(extras.WEIGHT, (3, 5))]
    assert found.model is None
    assert f"tensor {extras.WEIGHT} holds NaN or infinity" in found.findings[0]


@pytest.mark.parametrize(
    ("parameter", "tensor", "part", "layer"),
    [
        ("language_model.layers.1.mlp.up_proj.weight", "blk.1.ffn_up.weight", TEXT, 1),
        ("visual.blocks.2.mlp.up_proj.weight", "v.blk.2.ffn_up.weight", VISION, 2),
        ("visual.merger.mlp.0.weight", "mm.0.weight", MERGER, None),
    ],
)
def test_a_product_beyond_float32(
    parameter: str, tensor: str, part: str, layer: int | None, tmp_path: Path
) -> None:
    """Finite weights, of which a product is not."""
    paths = write(tmp_path, (f"model.{parameter}", slice(None), 3e38))
    found = doctor.examine(*paths, n_threads=1)
    assert found.bad_tensors == []
    fault = found.runs[-1].fault
    assert fault is not None
    assert (fault.part, fault.layer) == (part, layer)
    assert (fault.operation, fault.weights) == ("MUL_MAT", (tensor,))
    assert 0 < fault.source_peak < 1e4
    assert "beyond the range of its type" in found.findings[-1]


def test_a_gate_beyond_float32(tmp_path: Path) -> None:
    """Two finite products whose product is not: no weight is at fault."""
    layer = f"{LANGUAGE}layers.1.mlp."
    weights = golden.weights(MODEL.name)
    changes = [
        (f"{layer}{name}.weight", slice(None), weights[f"{layer}{name}.weight"] * np.float32(1e25))
        for name in ("gate_proj", "up_proj")
    ]
    found = doctor.examine(*write(tmp_path, *changes), n_threads=1)
    fault = found.runs[0].fault
    assert fault is not None
    assert (fault.part, fault.layer, fault.weights) == (TEXT, 1, ())
    assert "GLU" in fault.operation or fault.operation == "MUL"
    assert 1e20 < fault.source_peak < 1e38


@pytest.mark.parametrize("file_type", ["F32", "F16"])
def test_values_that_half_precision_cannot_hold(
    file_type: gguf_writer.FileType, tmp_path: Path
) -> None:
    """The vision FFN's inner values: exactly 2**14 times those of the model as it was."""
    up, down = (f"{VISUAL}blocks.1.mlp.{name}.weight" for name in ("up_proj", "down_proj"))
    weights = golden.weights(MODEL.name)
    scale = np.float32(2**14)
    (tmp_path / "scaled").mkdir()
    no_bias: Change = (up.replace("weight", "bias"), slice(None), 0.0)
    plain = write(tmp_path, no_bias, file_type=file_type)
    scaled = write(
        tmp_path / "scaled",
        no_bias,
        (up, slice(None), weights[up] * scale),
        (down, slice(None), weights[down] / scale),
        file_type=file_type,
    )
    before, after = (
        doctor.examine(*paths, n_threads=1, images=[PICTURE]) for paths in (plain, scaled)
    )
    assert before.warnings == []
    assert after.is_healthy
    (warning,) = after.warnings
    assert "vision tower, layer 1: v.blk.1.ffn_down.weight" in warning
    old, new = (read_by("v.blk.1.ffn_down.weight", paths) for paths in (plain, scaled))
    assert new == old * scale > 65504
    peak = next(one for one in after.peaks if one.overflows_f16)
    assert (peak.part, peak.layer) == (VISION, 1)
    assert peak.product >= new


def read_by(weights: str, paths: list[Path]) -> float:
    """The greatest magnitude that a product reads beside these weights, of the picture alone."""
    with Embedder(*paths, n_threads=1) as embedder:
        embedder._engine.record_nodes()
        embedder.trace(PICTURE)
        nodes = nodes_of(embedder._engine.take_nodes())
    (product,) = [node for node in nodes if node.weights == [weights]]
    return max(nodes[source.node].peak for source in product.sources if source.node >= 0)


# --- healthy models ---


def test_the_built_in_model_is_healthy() -> None:
    found = doctor.examine(n_threads=1)
    assert found.findings == []
    assert found.warnings == []
    assert [run.is_finite for run in found.runs] == [True, True]
    layers = {(peak.part, peak.layer) for peak in found.peaks}
    header = files.read_header(found.files[0]["path"])
    n_layers = header.metadata[f"{header.architecture}.block_count"]
    assert {layer for part, layer in layers if part == TEXT} >= set(range(n_layers))
    assert {part for part, _ in layers} == {TEXT, VISION, MERGER}


@pytest.mark.parametrize("name", sorted(family.FAMILIES))
def test_text_families_are_healthy(name: str, tmp_path: Path) -> None:
    weights = family_golden.load(name).weights
    path = family.write(family.FAMILIES[name], weights, tmp_path / f"{name}.gguf")
    found = doctor.examine(path, n_threads=1, texts=["a", "a picture of the fox " * 40])
    assert found.findings == []
    assert len(found.runs) == 3


@pytest.mark.parametrize("name", sorted(vision_family.VISION_FAMILIES))
def test_vision_families_are_healthy(name: str, tmp_path: Path) -> None:
    weights = family_golden.load(name).weights
    paths = vision_family.write(vision_family.VISION_FAMILIES[name], weights, tmp_path / name)
    found = doctor.examine(*paths, n_threads=1)
    tiles = [run.error for run in found.runs if "tiles" in run.error]
    assert len(found.findings) == len(tiles)


def test_qwen3_is_healthy(tmp_path: Path) -> None:
    weights = qwen3.golden_weights()
    paths = (
        qwen3.write_text(weights, tmp_path / "t.gguf"),
        qwen3.write_mmproj(weights, tmp_path / "m.gguf"),
    )
    found = doctor.examine(*paths, n_threads=1)
    assert found.findings == []
    assert {peak.part for peak in found.peaks} == {TEXT, VISION, MERGER}


def test_recording_changes_no_bit_and_the_last_node_is_the_result(
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    with Embedder(*tiny_files("qwen25_small"), n_threads=2) as embedder:
        items = [(PICTURE, "image"), ("a b c", "document")]
        plain = [embedder.trace(item, kind=kind) for item, kind in items]  # type: ignore[arg-type]
        embedder._engine.record_nodes()
        for (item, kind), before in zip(items, plain, strict=True):
            watched = embedder.trace(item, kind=kind)  # type: ignore[arg-type]
            last = nodes_of(embedder._engine.take_nodes())[-1]
            np.testing.assert_array_equal(watched.hidden, before.hidden)
            assert last.peak == float(np.abs(watched.hidden).max())
            assert last.n_values == watched.hidden.size
    assert last.name.startswith("result_")


# --- weights ---


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_weights_of_each_type(name: str) -> None:
    """gguf-py's own reader is the judge."""
    kind = gguf.GGMLQuantizationType[name]
    values = np.random.default_rng(0).standard_normal((3, 8192), np.float32)
    stored = gguf.quants.quantize(values, kind)
    raw = stored.reshape(-1).view(np.uint8).copy()
    wanted = gguf.quants.dequantize(stored, kind)
    n_nan, n_inf, first, peak = _core.measure(raw, int(kind)) or (-1, -1, -1, -1.0)
    assert (n_nan, n_inf, first) == (0, 0, -1)
    assert peak == np.abs(wanted).max()


def test_a_scale_that_is_not_finite() -> None:
    """Of a Q8_0 block in the middle, as far as a reader of single bytes could not tell."""
    kind = gguf.GGMLQuantizationType.Q8_0
    stored = gguf.quants.quantize(np.ones((1, 8192), np.float32), kind)
    raw = stored.reshape(-1).view(np.uint8).copy()
    n_block = 34
    raw[200 * n_block : 200 * n_block + 2] = np.array([np.inf], np.float16).view(np.uint8)
    rest = float(np.float32(np.float16(1 / 127)) * 127)
    assert _core.measure(raw, int(kind)) == (0, 32, 200 * 32, rest)


def test_whole_numbers_are_not_judged() -> None:
    kind = gguf.GGMLQuantizationType.I32
    assert _core.measure(np.full(8, 255, np.uint8), int(kind)) is None


@pytest.mark.parametrize("file_type", ["F32", "F16"])
def test_a_file_that_is_read_in_pieces(
    file_type: gguf_writer.FileType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that end within a row, and one that holds all: the place is the same."""
    place = (101, 37)
    changes = [(f"{LANGUAGE}layers.1.mlp.up_proj.weight", at, np.nan) for at in (place, (140, 3))]
    header = files.read_header(write(tmp_path, *changes, file_type=file_type)[0])
    for n_bytes in (1003, 4096, weights.BLOCK_BYTES):
        monkeypatch.setattr(weights, "BLOCK_BYTES", n_bytes)
        read: list[int] = []
        (bad,) = weights.scan(header, read.append)
        assert (bad.name, bad.first, bad.n_nan) == ("blk.1.ffn_up.weight", place, 2)
        assert sum(read) == weights.n_bytes(header)
        assert max(read) <= n_bytes


# --- the command ---


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("healthy: no findings\n")
    assert "built-in" not in err
    path = tmp_path / "page.png"
    Image.fromarray(tiny.picture(6, 4)).save(path)
    bad = write(tmp_path, (f"{VISUAL}blocks.2.mlp.up_proj.weight", (3, 5), np.nan))
    words = [str(bad[0]), "--mmproj", str(bad[1]), "--threads", "1", "--image", str(path)]
    assert main(["doctor", *words, "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert not record["healthy"]
    assert record["runs"][-1]["item"] == f"picture {path}"
    assert record["runs"][-1]["fault"]["weights"] == ["v.blk.2.ffn_up.weight"]
    assert main(["doctor", *words, "--quiet"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("finding ", " ")) for line in lines)
    assert main(["doctor", str(tmp_path / "none.gguf")]) == 1
    assert "there is no such file" in " ".join(capsys.readouterr().out.split())  # wrapped
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--threads", "none"])
    assert caught.value.code == 2


def test_an_item_that_cannot_be_read(tmp_path: Path) -> None:
    found = doctor.examine(n_threads=1, images=[tmp_path / "none.png"])
    (finding,) = found.findings
    assert f"picture {tmp_path / 'none.png'}" in finding
    assert "cannot open the file" in finding


def test_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    paths = write(tmp_path, (f"{LANGUAGE}embed_tokens.weight", (TOKEN, 5), np.nan))
    message = r"^item 2: .*`jmm doctor MODEL"
    with Embedder(*paths, n_threads=1) as embedder, pytest.raises(NonFiniteError, match=message):
        embedder.encode_document(["a", "b", WORD])
