"""The vision tower apart from the language model: equal bits, and no weights of the other."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exactness
from jmm import Embedder, InputError, ModelLoadError, VisionEncoder, VisionTokens
from subprocess_case import run
from support import gguf_writer, golden, sanitizer, tiny
from support.sequences import relative_error

NAME = "qwen25_small"
MODEL = tiny.MODELS[NAME]
PICTURES = [tiny.picture(4, 6), tiny.picture(16, 10, 1), tiny.pixels(70, 100, 2)]
Files = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def paths(tiny_files: Files) -> tuple[Path, Path]:
    return tiny_files(NAME)


@pytest.fixture(scope="module")
def whole(paths: tuple[Path, Path]) -> Iterator[Embedder]:
    with Embedder(*paths, profile="jina-embeddings-v4", n_threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def halved(paths: tuple[Path, Path]) -> Iterator[Embedder]:
    options: Any = {"profile": "jina-embeddings-v4", "n_threads": 2}
    with Embedder(*paths, load_vision=False, **options) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def encoder(paths: tuple[Path, Path]) -> Iterator[VisionEncoder]:
    with VisionEncoder(paths[1], profile="jina-embeddings-v4", n_threads=2) as encoder:
        yield encoder


def test_golden_towers(tiny_name: str, tiny_files: Files) -> None:
    cases = [case for case in golden.load(tiny_name).values() if case.kind == "image"]
    cases = [case for case in cases if case.grids != [(2, 2)]]  # below the processor's least area
    with VisionEncoder(tiny_files(tiny_name)[1], n_threads=2) as encoder:
        assert encoder.dim == tiny.MODELS[tiny_name].hidden
        for case, tokens in zip(
            cases, encoder.encode([case.images[0] for case in cases]), strict=True
        ):
            assert tokens.grid == case.grids[0]
            assert tokens.values.dtype == np.float32
            assert relative_error(tokens.values, case.vit) <= exactness.VIT


def test_without_the_tower(whole: Embedder, halved: Embedder, encoder: VisionEncoder) -> None:
    """Equal bits to the one-step path. Guards patch 0022."""
    for picture in PICTURES:
        right = whole.encode_images(picture)
        for source in (encoder.encode(picture), whole.encode_vision(picture)):
            for embedder in (whole, halved):
                np.testing.assert_array_equal(embedder.encode_images(source), right)
                np.testing.assert_array_equal(embedder.encode_images([source])[0], right)
                np.testing.assert_array_equal(embedder.encode_document(source), right)
                np.testing.assert_array_equal(
                    next(iter(embedder.encode_iter([source], kind="image"))), right
                )
        (mixed,) = whole.encode_document([["a", picture, "b"]])
        (tokens,) = halved.encode_document([["a", encoder.encode(picture), "b"]])
        np.testing.assert_array_equal(tokens, mixed)


def test_many_and_mixed_with_pictures(whole: Embedder, halved: Embedder) -> None:
    many = whole.encode_vision(PICTURES)
    assert [type(tokens) for tokens in many] == [VisionTokens] * 3
    assert whole.encode_vision([]) == []
    right = whole.encode_images(PICTURES)
    for rows in (
        halved.encode_images(many),
        whole.encode_images([many[0], PICTURES[1], many[2]]),
        halved.encode_images(iter(many)),
        np.stack(list(halved.encode_iter(many, kind="image"))),
    ):
        assert np.abs(rows - right).max() <= exactness.MOVED
    for tokens, picture in zip(many, PICTURES, strict=True):
        alone = whole.encode_vision(picture)
        most = np.abs(alone.values).max()
        assert np.abs(tokens.values - alone.values).max() <= exactness.MOVED * most


def test_round_trips(encoder: VisionEncoder, halved: Embedder) -> None:
    tokens = encoder.encode(PICTURES[1])
    data = tokens.to_bytes()
    for again in (
        VisionTokens.from_bytes(data),
        VisionTokens.from_bytes(bytearray(data)),
        pickle.loads(pickle.dumps(tokens)),
        replace(tokens),
        VisionTokens(np.asfortranarray(tokens.values), tokens.grid, tokens.fingerprint),
    ):
        np.testing.assert_array_equal(again.values, tokens.values)
        assert (again.grid, again.fingerprint) == (tokens.grid, tokens.fingerprint)
        assert again.values.flags.c_contiguous
        np.testing.assert_array_equal(halved.encode_images(again), halved.encode_images(tokens))
    assert VisionTokens.from_bytes(data).to_bytes() == data
    assert len(data) < tokens.values.nbytes + 200


def damaged() -> dict[str, Any]:
    tokens = VisionTokens(np.ones((6, 64), np.float32), (4, 6), "0123")
    data = tokens.to_bytes()
    magic, rest = data.split(b"\n", 1)
    values = rest.split(b"\n", 1)[1]
    nan = values[:-4] + np.float32(np.nan).tobytes()

    def headed(head: object, body: bytes = values) -> bytes:
        text = head if isinstance(head, bytes) else json.dumps(head).encode()
        return magic + b"\n" + text + b"\n" + body

    good = {"grid": [4, 6], "dim": 64, "fingerprint": "0123"}
    return {
        "nothing": b"",
        "junk": b"junk",
        "magic alone": magic + b"\n",
        "another version": data.replace(b"tokens 1", b"tokens 2"),
        "no head": magic + b"\n\n",
        "no end of the head": magic + b"\n" + b"{}",
        "cut by one byte": data[:-1],
        "cut by a number": data[:-4],
        "cut by a row": data[: -4 * 64],
        "no numbers": data[: -len(values)],
        "a byte more": data + b"x",
        "a row more": data + bytes(4 * 64),
        "NaN": headed(good, nan),
        "no JSON": headed(b"{grid: 1}"),
        "no UTF-8": headed(b'{"grid": [4, 6], "dim": 64, "fingerprint": "\xff"}'),
        "a list": headed([4, 6, 64]),
        "a number": headed(7),
        "null": headed(None),
        "deep": headed(b"[" * 100_000),
        "no grid": headed({"dim": 64, "fingerprint": "0"}),
        "no dim": headed({"grid": [4, 6], "fingerprint": "0"}),
        "no fingerprint": headed({"grid": [4, 6], "dim": 64}),
        "another grid": headed(good | {"grid": [4, 8]}),
        "grid of one": headed(good | {"grid": [24]}),
        "grid of three": headed(good | {"grid": [1, 4, 6]}),
        "grid of text": headed(good | {"grid": ["4", "6"]}),
        "grid of null": headed(good | {"grid": None}),
        "grid of infinity": headed(b'{"grid": [1e999, 6], "dim": 64, "fingerprint": "0"}'),
        "grid of NaN": headed(b'{"grid": [NaN, 6], "dim": 64, "fingerprint": "0"}'),
        "a grid below 0": headed(good | {"grid": [-4, -6]}),
        "half a patch": headed(good | {"grid": [1.5, 16]}),
        "dim 0": headed(good | {"dim": 0}),
        "dim -1": headed(good | {"dim": -1}),
        "dim 2**70": headed(good | {"dim": 2**70}),
        "dim 63": headed(good | {"dim": 63}),
        "dim of text": headed(good | {"dim": "64"}),
        "dim 64.0": headed(good | {"dim": 64.5}),
        "no bytes": "jmm vision tokens 1\n",
        "None": None,
        "an array": np.zeros(8),
    }


@pytest.mark.parametrize("kind", damaged())
def test_damaged_bytes(kind: str) -> None:
    with pytest.raises(InputError, match="vision tokens"):
        VisionTokens.from_bytes(damaged()[kind])


def test_every_cut_and_flip_of_the_head(encoder: VisionEncoder, halved: Embedder) -> None:
    """Bytes that still parse make tokens, which the model takes or refuses."""
    data = encoder.encode(PICTURES[0]).to_bytes()
    head = data.index(b"}") + 2
    for cut in range(head + 8):
        with pytest.raises(InputError):
            VisionTokens.from_bytes(data[:cut])
    for place in range(head):
        for flip in (1, 32, 128):
            flipped = bytearray(data)
            flipped[place] ^= flip
            try:
                halved.encode_images(VisionTokens.from_bytes(bytes(flipped)))
            except InputError:
                continue


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (np.ones((6, 64), np.float64), (4, 6)),
        (np.ones((6, 64), np.float16), (4, 6)),
        (np.ones((6, 64), ">f4"), (4, 6)),
        (np.ones((5, 64), np.float32), (4, 6)),
        (np.ones((6, 8, 8), np.float32), (4, 6)),
        (np.ones(384, np.float32), (4, 6)),
        (np.full((6, 64), np.inf, np.float32), (4, 6)),
        (np.ones((0, 64), np.float32), (0, 0)),
        (np.ones((0, 64), np.float32), (0, 6)),
        (np.ones((6, 0), np.float32), (4, 6)),
        (np.ones((6, 64), np.float32), (-4, -6)),
        (np.ones((6, 64), np.float32), (3, 8)),
        (np.ones((6, 64), np.float32), (4, 6, 1)),
        (np.ones((6, 64), np.float32), None),
        (np.ones((6, 64), np.float32), 24),
        (np.ones((6, 64), np.float32), ("4", "6")),
        (np.ones((6, 64), np.float32), (4.5, 16 / 3)),
        (None, (4, 6)),
        ("text", (4, 6)),
        ([[1.0] * 64] * 6, (4, 6)),
    ],
)
def test_no_tokens(values: Any, grid: Any) -> None:
    with pytest.raises(InputError, match="vision tokens"):
        VisionTokens(values, grid, "0123")


def test_tokens_that_do_not_fit(whole: Embedder, encoder: VisionEncoder) -> None:
    tokens = encoder.encode(PICTURES[0])
    wrong = {
        "another tower": replace(tokens, fingerprint="0" * 16),
        "fingerprint": replace(tokens, fingerprint=""),
        r"\[6, 32\]": replace(tokens, values=np.ones((6, 32), np.float32)),
        "the grid is": VisionTokens(np.ones((4000, 64), np.float32), (2, 8000), tokens.fingerprint),
    }
    for message, bad in wrong.items():
        for item in (bad, ["a", bad]):
            with pytest.raises(InputError, match=message) as caught:
                whole.encode_document(["good", item])
            assert caught.value.index == 1
        rows = whole.encode_document(["good", bad, tokens], on_error="nan")
        assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(InputError, match="another tower") as caught:
        whole.encode_images([tokens, wrong["another tower"]])
    assert caught.value.index == 1


def test_more_tokens_than_fit(paths: tuple[Path, Path], encoder: VisionEncoder) -> None:
    tokens = encoder.encode(PICTURES[1])
    with (
        Embedder(*paths, n_ctx=16, load_vision=False, n_threads=2) as small,
        pytest.raises(InputError, match=r"40|42") as caught,
    ):
        small.encode_images([tokens])
    assert caught.value.index == 0


def test_raw_pictures_need_the_tower(halved: Embedder) -> None:
    patches = tiny.patches(PICTURES[0])
    for call in (
        lambda: halved.encode_document(["a", PICTURES[0]]),
        lambda: halved.encode_document(["a", ["b", PICTURES[0]]]),
        lambda: list(halved.encode_iter(["a", PICTURES[0]])),
        lambda: halved.encode_patches(np.concatenate([patches] * 2), [[1, 4, 6]] * 2),
        lambda: halved.encode_images(PICTURES),
        lambda: halved.encode_vision(PICTURES),
    ):
        with pytest.raises(InputError, match="vision tower") as caught:
            call()
        assert caught.value.index in (0, 1, None)
    with pytest.raises(InputError, match="vision tower was not loaded") as caught:
        halved.encode_document(["a", "b", PICTURES[0]])
    assert caught.value.index == 2
    assert np.isfinite(halved.encode_query("a")).all()
    rows = halved.encode_document(["a", PICTURES[0]], on_error="nan")
    assert np.isnan(rows).all(axis=1).tolist() == [False, True]


def test_tokens_are_no_pictures_for_the_tower(encoder: VisionEncoder, whole: Embedder) -> None:
    tokens = encoder.encode(PICTURES[0])
    for encode in (encoder.encode, whole.encode_vision):
        with pytest.raises(InputError, match="VisionTokens"):
            encode(tokens)
        with pytest.raises(InputError, match=r"encoded already|VisionTokens") as caught:
            encode([PICTURES[0], tokens])
        assert caught.value.index == 1
        one, none = encode([PICTURES[0], tokens], on_error="nan")
        assert none is None
        np.testing.assert_array_equal(one.values, tokens.values)


def test_bad_pictures(encoder: VisionEncoder) -> None:
    items = [PICTURES[0], b"junk", PICTURES[1], None]
    with pytest.raises(InputError) as caught:
        encoder.encode(items)
    assert caught.value.index == 1
    found = encoder.encode(items, on_error="nan")
    assert [tokens is None for tokens in found] == [False, True, False, True]
    assert encoder.encode(b"junk", on_error="nan") is None
    for bad in ("none", None, 1):
        with pytest.raises(InputError, match="on_error"):
            encoder.encode(items, on_error=bad)
    for bad in (3, {"a": 1}, None):
        with pytest.raises(InputError):
            encoder.encode(bad)


def test_encoder_life(paths: tuple[Path, Path]) -> None:
    with VisionEncoder(paths[1], n_threads=2, max_pixels=28 * 28 * 6) as encoder:
        right = encoder.encode(PICTURES[1])
        assert len(right.values) <= 6
        again = pickle.loads(pickle.dumps(encoder))
        assert encoder.info["max_pixels"] == 28 * 28 * 6
    with again:
        np.testing.assert_array_equal(again.encode(PICTURES[1]).values, right.values)
    for call in (again.close, encoder.close):
        call()
    with pytest.raises(InputError, match="closed"):
        again.encode(PICTURES[1])


def test_encoder_files(paths: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"GGUF but nothing more")
    for path in (paths[0], tmp_path, tmp_path / "none", tmp_path / "junk"):
        with pytest.raises(ModelLoadError):
            VisionEncoder(path)
    for path in (None, 3):
        with pytest.raises(InputError):
            VisionEncoder(path)  # type: ignore[arg-type]


def test_fingerprints(paths: tuple[Path, Path], whole: Embedder, tmp_path: Path) -> None:
    def of(path: Path) -> object:
        with VisionEncoder(path, n_threads=1) as encoder:
            return encoder.info["fingerprint"]

    copy = Path(shutil.copy(paths[1], tmp_path / "copy.gguf"))
    right = of(paths[1])
    assert right == of(copy) == whole.info["fingerprint"]
    weights = golden.weights(NAME)
    other = tiny.weights(replace(MODEL, seed=MODEL.seed + 1))
    bias = "model.visual.merger.mlp.2.bias"
    changed = {**weights, bias: weights[bias] + np.float32(1e-3)}
    others = [
        of(gguf_writer.write_mmproj(MODEL, weights, tmp_path / "f16.gguf", "F16")),
        of(gguf_writer.write_mmproj(MODEL, weights, tmp_path / "q8.gguf", "Q8_0")),
        of(gguf_writer.write_mmproj(MODEL, other, tmp_path / "seed.gguf")),
        of(gguf_writer.write_mmproj(MODEL, changed, tmp_path / "bias.gguf")),
        of(gguf_writer.write_mmproj(MODEL, weights, tmp_path / "flat.gguf", weight_flat=True)),
    ]
    with exactness.written_window(56):
        others.append(of(gguf_writer.write_mmproj(MODEL, weights, tmp_path / "window.gguf")))
    assert len({right, *others}) == 1 + len(others)
    named = gguf_writer.write_mmproj(MODEL, weights, tmp_path / "named.gguf", name="another")
    assert of(named) == right


def test_tokens_of_another_quantisation(
    paths: tuple[Path, Path], halved: Embedder, tmp_path: Path
) -> None:
    path = gguf_writer.write_mmproj(MODEL, golden.weights(NAME), tmp_path / "f16.gguf", "F16")
    with VisionEncoder(path, n_threads=1) as encoder:
        tokens = encoder.encode(PICTURES[0])
    with pytest.raises(InputError, match="another tower"):
        halved.encode_images(tokens)


# In a process of its own: what one half has left in the heap, the next would take.
GROWN = """
import ctypes, pathlib, resource

trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda keep: None)

def megabytes():
    gc.collect()
    trim(0)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20

page = tiny.picture(4, 6)
warm = Embedder(n_threads=1)
warm.encode_images(page)
tokens = jmm.VisionTokens(np.ones((6, 512), np.float32), (4, 6), "")
before = megabytes()
if words[2] == "vision":
    loaded = jmm.VisionEncoder(words[1], n_threads=1)
    loaded.encode(page)
else:
    loaded = Embedder(words[0], words[1], load_vision=words[2] == "both", n_threads=1)
    tokens = jmm.VisionTokens(tokens.values, tokens.grid, loaded.info["fingerprint"])
    loaded.encode_images(tokens)
    loaded.encode_query("a")
print(megabytes() - before)
"""


@sanitizer.measures_memory
def test_halves_hold_no_weights_of_the_other(tmp_path: Path) -> None:
    """Each half's weights are 40 MB and more here."""
    wide = replace(MODEL, v_hidden=640, v_ffn=1280, hidden=512, ffn=1536, layers=4, heads=8)
    wide = replace(wide, kv_heads=2, mrope_section=(8, 12, 12))
    weights = tiny.weights(wide)
    text = gguf_writer.write_text(wide, weights, tmp_path / "text.gguf")
    mmproj = gguf_writer.write_mmproj(wide, weights, tmp_path / "mmproj.gguf")
    least = min(text.stat().st_size, mmproj.stat().st_size) / 2**20
    assert least > 40
    grown = {half: float(run(GROWN, text, mmproj, half)[0]) for half in ("text", "vision", "both")}
    assert grown["text"] < grown["both"] - least / 2
    assert grown["vision"] < grown["both"] - least / 2
