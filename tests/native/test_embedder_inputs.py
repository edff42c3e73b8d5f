"""What `Embedder` accepts and refuses, and that it works on after each refusal."""

from __future__ import annotations

import io
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import ContextOverflowError, Embedder, InputError, ModelLoadError
from support import tiny

PICTURE = tiny.picture(4, 6)
PATCHES = tiny.patches(PICTURE)
GRID = [1, 4, 6]
DIM = 256


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as built_in:
        yield built_in


@pytest.fixture
def files(tiny_files: Callable[..., tuple[Path, Path]]) -> tuple[Path, Path]:
    return tiny_files("qwen25_small")


def png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "png")
    return buffer.getvalue()


def refuse(kind: type[Exception], message: str, **arguments: object) -> None:
    with pytest.raises(kind, match=message):
        Embedder(**arguments).close()  # type: ignore[arg-type]


# --- the constructor ---


@pytest.mark.parametrize("name", ["n_ctx", "n_batch", "n_ubatch", "n_threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_counts_below_1(name: str, value: int) -> None:
    refuse(InputError, f"^{name} is {value}; 1 to [0-9,]+ are allowed$", **{name: value})


@pytest.mark.parametrize(
    "name", ["n_ctx", "n_batch", "n_ubatch", "n_threads", "n_gpu_layers", "min_pixels"]
)
@pytest.mark.parametrize("value", [1.5, True, "8", [8]])
def test_counts_of_another_type(name: str, value: object) -> None:
    message = re.escape(f"{name} is {value!r}; a whole number is needed")
    refuse(InputError, message, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "high"),
    [
        ("n_ctx", 32_769, "32,768"),
        ("n_ctx", 2**70, "32,768"),
        ("n_threads", 513, "512"),
        ("n_threads", 10**6, "512"),
        ("n_batch", 2**31, "2,147,483,647"),
        ("n_ubatch", 2**31, "2,147,483,647"),
        ("n_gpu_layers", 2**31, "2,147,483,647"),
        ("max_pixels", 2**31, "2,147,483,647"),
    ],
)
def test_counts_too_large(name: str, value: int, high: str) -> None:
    refuse(InputError, f"^{name} is {value}; 1|-1 to {high} are allowed$", **{name: value})


def test_greatest_counts_load() -> None:
    most = 2**31 - 1
    with Embedder(n_ctx=32_768, n_batch=most, n_ubatch=most, n_gpu_layers=most) as embedder:
        assert embedder.encode_query("a").shape == (DIM,)


def test_n_gpu_layers() -> None:
    refuse(InputError, "^n_gpu_layers is -2; -1 to", n_gpu_layers=-2)


@pytest.mark.parametrize("task", ["", "search", 5, []])
def test_unknown_task(task: object) -> None:
    message = f"^task is {re.escape(repr(task))}; profile jina-embeddings-v4 has "
    message += "retrieval, text-matching, code$"
    refuse(InputError, message, task=task, profile="jina-embeddings-v4")


@pytest.mark.parametrize("profile", ["", "jina", 5, []])
def test_unknown_profile(profile: object) -> None:
    message = f"^profile is {re.escape(repr(profile))}; known profiles are jina-embeddings-v4, "
    refuse(InputError, message, profile=profile)


def test_pixel_limits_that_cross() -> None:
    refuse(InputError, "min_pixels=9000 is above max_pixels=8000", min_pixels=9000, max_pixels=8000)


def test_mmproj_without_a_model(files: tuple[Path, Path]) -> None:
    refuse(InputError, "mmproj is given without a model; pass both, or none", mmproj=files[1])


@pytest.mark.parametrize("path", [5, [], 1.5, object])
@pytest.mark.parametrize("name", ["model", "mmproj"])
def test_paths_are_paths(files: tuple[Path, Path], name: str, path: object) -> None:
    given = {"model": files[0], "mmproj": files[1], name: path}
    refuse(InputError, f"is the path of a file, and this is {re.escape(repr(path))}$", **given)


@pytest.mark.parametrize("name", ["adapter", "n_seq", "verbose"])
def test_unknown_argument(name: str) -> None:
    refuse(TypeError, name, **{name: 1})


@pytest.mark.parametrize("name", ["model", "mmproj"])
def test_files_that_are_no_gguf(tmp_path: Path, files: tuple[Path, Path], name: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.txt").write_text("no model at all\n")
    (tmp_path / "header.gguf").write_bytes(b"GGUF")
    wanted = {
        "none.gguf": "there is no such file",
        ".": "this is no file",
        "empty": "not a GGUF file: it starts with b''",
        "text.txt": "not a GGUF file: it starts with b'no m'",
        "header.gguf": "not a readable GGUF file",
    }
    for file, message in wanted.items():
        given = {"model": files[0], "mmproj": files[1], name: tmp_path / file}
        refuse(ModelLoadError, f"{re.escape(str(tmp_path / file))}: .*{message}", **given)


def test_the_two_files_mixed_up(files: tuple[Path, Path]) -> None:
    text, mmproj = files
    refuse(ModelLoadError, "this is a vision tower; pass it as mmproj=", model=mmproj)
    refuse(ModelLoadError, "this is a language model", model=text, mmproj=text)


def test_files_of_two_models(tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    text, _ = tiny_files("qwen25_head80")
    _, mmproj = tiny_files("qwen25_small")
    refuse(ModelLoadError, "gives rows of 64 numbers, .* takes 96", model=text, mmproj=mmproj)


@pytest.mark.parametrize("as_type", [str, Path])
def test_any_kind_of_path(files: tuple[Path, Path], as_type: Callable[[Path], object]) -> None:
    with Embedder(as_type(files[0]), as_type(files[1]), n_threads=1) as embedder:  # type: ignore[arg-type]
        assert embedder.encode_images(PICTURE).shape == (64,)
        assert embedder.info["model"] == str(files[0])


# --- what was loaded ---


def test_info(files: tuple[Path, Path]) -> None:
    arguments = {"n_threads": 1, "n_ctx": 500, "max_pixels": 90_000, "f16_kv": True}
    with Embedder(*files, profile="jina-embeddings-v4", task="code", **arguments) as embedder:
        info = embedder.info
    wanted = {
        "model": str(files[0]),
        "mmproj": str(files[1]),
        "architecture": "qwen2vl",
        "profile": "jina-embeddings-v4",
        "profile_reason": "asked for by name",
        "task": "code",
        "tasks": ("retrieval", "text-matching", "code"),
        "dim": 64,
        "n_ctx": 500,
        "n_threads": 1,
        "min_pixels": 3136,
        "max_pixels": 90_000,
        "kv_cache": "f16",
        "llama_cpp": "b11549",
    }
    assert {key: info[key] for key in wanted} == wanted


def test_pickle(files: tuple[Path, Path]) -> None:
    with Embedder(*files, profile="jina-embeddings-v4", task="code", n_threads=1) as embedder:
        vector = embedder.encode_query("a")
        with pickle.loads(pickle.dumps(embedder)) as again:
            assert again.info == embedder.info
            np.testing.assert_array_equal(again.encode_query("a"), vector)


def test_closed() -> None:
    with Embedder(n_threads=1) as embedder:
        embedder.encode_query("a")
    embedder.close()
    calls = (
        lambda **options: embedder.encode_query(["a"], **options),
        lambda **options: embedder.encode_document(["a"], **options),
        lambda **options: embedder.encode_images([PICTURE], **options),
        lambda **options: embedder.encode_patches(PATCHES, [GRID], **options),
        lambda **options: embedder.encode_query([], **options),
    )
    for call in calls:
        for on_error in ("raise", "nan"):
            with pytest.raises(InputError, match="closed") as caught:
                call(on_error=on_error)
            assert caught.value.index is None
    assert embedder.dim == DIM
    assert "demo-text.gguf" in repr(embedder)


# --- shapes ---


def test_one_item_or_many(embedder: Embedder) -> None:
    calls = (
        (embedder.encode_query, "a"),
        (embedder.encode_document, "a"),
        (embedder.encode_document, PICTURE),
        (embedder.encode_images, PICTURE),
    )
    for encode, item in calls:
        one = encode(item)
        assert one.shape == (DIM,)
        assert one.dtype == np.float32
        many = encode([item])
        assert many.shape == (1, DIM)
        np.testing.assert_array_equal(many[0], one)
        assert encode([item] * 3).flags.c_contiguous


def test_no_items(embedder: Embedder) -> None:
    for encode in (embedder.encode_query, embedder.encode_document, embedder.encode_images):
        for nothing in ([], (), iter(())):
            empty = encode(nothing, truncate_dim=8)
            assert empty.shape == (0, 8)
            assert empty.dtype == np.float32
    assert embedder.encode_images(np.zeros((0, 56, 56, 3), np.uint8)).shape == (0, DIM)
    assert embedder.encode_patches(PATCHES[:0], []).shape == (0, DIM)


def test_generators(embedder: Embedder) -> None:
    wanted = embedder.encode_query(["a", "b"])
    np.testing.assert_array_equal(embedder.encode_query(text for text in "ab"), wanted)


def test_four_axes_are_many_pictures(embedder: Embedder) -> None:
    other = tiny.picture(4, 6, seed=1)
    got = embedder.encode_images(np.stack([PICTURE, other]))
    np.testing.assert_array_equal(got, embedder.encode_images([PICTURE, other]))


def test_every_kind_of_picture_in_one_list(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(png(PICTURE))
    alpha = np.dstack([PICTURE, np.full(PICTURE.shape[:2], 255, np.uint8)])
    sources = [PICTURE, alpha, path, str(path), png(PICTURE), Image.fromarray(PICTURE)]
    sources += [io.BytesIO(png(PICTURE)), memoryview(png(PICTURE))]
    rows = embedder.encode_images(sources)
    np.testing.assert_allclose(rows, np.tile(rows[0], (len(sources), 1)), atol=2e-6)
    np.testing.assert_allclose(rows[0], embedder.encode_images(PICTURE), atol=2e-6)


def test_texts_and_pictures_in_one_list_of_documents(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(png(PICTURE))
    rows = embedder.encode_document(["a", path, str(path), PICTURE])
    np.testing.assert_allclose(rows[1], embedder.encode_images(path), atol=2e-6)
    np.testing.assert_allclose(rows[3], rows[1], atol=2e-6)
    np.testing.assert_allclose(rows[0], embedder.encode_document("a"), atol=2e-6)
    np.testing.assert_allclose(rows[2], embedder.encode_document(str(path)), atol=2e-6)
    assert np.abs(rows[2] - rows[1]).max() > 0.01


def test_patches_are_what_pictures_become(embedder: Embedder) -> None:
    other = tiny.picture(2, 4)
    both = np.concatenate([PATCHES, tiny.patches(other)])
    rows = embedder.encode_patches(both, [GRID, [1, 2, 4]])
    wanted = embedder.encode_patches(PATCHES, GRID), embedder.encode_patches(both[24:], [1, 2, 4])
    np.testing.assert_allclose(rows, wanted, atol=2e-6)
    assert wanted[0].shape == (DIM,)


def test_patches_of_any_layout(embedder: Embedder) -> None:
    wanted = embedder.encode_patches(PATCHES, GRID)
    frozen = PATCHES.copy()
    frozen.flags.writeable = False
    for layout in (np.asfortranarray(PATCHES), frozen, np.repeat(PATCHES, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(embedder.encode_patches(layout, GRID), wanted)


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncate_dim": 0}, "truncate_dim is 0; allowed are 1 to 256"),
        ({"truncate_dim": 257}, "truncate_dim is 257; allowed are 1 to 256"),
        ({"truncate_dim": True}, "truncate_dim is True; allowed"),
        ({"truncate_dim": 8.0}, "truncate_dim is 8.0; allowed"),
        ({"on_error": "skip"}, "on_error is 'skip'; allowed are 'raise' and 'nan'"),
        ({"batch_size": 0}, "batch_size is 0; 1 to"),
        ({"batch_size": 2.0}, "batch_size is 2.0; a whole number"),
    ],
)
def test_options(embedder: Embedder, options: dict[str, object], message: str) -> None:
    calls = (
        lambda: embedder.encode_query("a", **options),  # type: ignore[arg-type]
        lambda: embedder.encode_document([], **options),  # type: ignore[arg-type]
        lambda: embedder.encode_images(PICTURE, **options),  # type: ignore[arg-type]
        lambda: embedder.encode_patches(PATCHES, GRID, **options),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert caught.value.index is None


def test_unknown_option(embedder: Embedder) -> None:
    with pytest.raises(TypeError, match="batchsize"):
        embedder.encode_query("a", batchsize=2)  # type: ignore[call-arg]


def test_truncate_and_normalize(embedder: Embedder) -> None:
    raw = embedder.encode_query(["a", "bc"], normalize=False).astype(np.float64)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.01
    got = embedder.encode_query(["a", "bc"], truncate_dim=7)
    wanted = raw[:, :7] / np.linalg.norm(raw[:, :7], axis=1, keepdims=True)
    np.testing.assert_allclose(got, wanted, atol=2e-6)
    cut = embedder.encode_query(["a", "bc"], truncate_dim=7, normalize=False)
    np.testing.assert_array_equal(cut, raw[:, :7].astype(np.float32))


def test_batch_size_leaves_the_rows(embedder: Embedder) -> None:
    texts = [letter * n for n, letter in enumerate("abcdefg", 1)]
    wanted = embedder.encode_query(texts)
    for batch_size in (1, 2, 3, 10**6):
        got = embedder.encode_query(texts, batch_size=batch_size)
        np.testing.assert_allclose(got, wanted, atol=2e-6)


def test_progress_bar(embedder: Embedder, capfd: pytest.CaptureFixture[str]) -> None:
    embedder.encode_query(["a", "", "b"], on_error="nan", show_progress=True)
    assert "3/3" in capfd.readouterr().err
    embedder.encode_query(["a", "b"])
    assert capfd.readouterr() == ("", "")


# --- bad items ---


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (5, "int given; one of the texts"),
        (None, "NoneType given"),
        ({"a": 1}, "dict given"),
        (b"abc", "bytes given"),
        (np.array("abc"), "ndarray given"),
    ],
)
def test_no_list_of_texts(embedder: Embedder, items: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        embedder.encode_query(items)  # type: ignore[arg-type]
    assert caught.value.index is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "the text is empty"),
        ("a\ud800", "lone surrogate"),
        (b"abc", "a text is a str, and this is bytes"),
        (7, "a text is a str, and this is int"),
        (["a"], "a text is a str, and this is list"),
    ],
)
def test_bad_texts(
    embedder: Embedder, bad: object, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["a", "b", bad, "c"]
    with pytest.raises(InputError, match=f"^item 2: .*{message}") as caught:
        embedder.encode_query(texts)  # type: ignore[arg-type]
    assert caught.value.index == 2
    with caplog.at_level(logging.WARNING, "jmm"):
        rows = embedder.encode_query(texts, on_error="nan")  # type: ignore[arg-type]
    assert np.isnan(rows).all(axis=1).tolist() == [False, False, True, False]
    np.testing.assert_allclose(rows[[0, 1, 3]], embedder.encode_query(["a", "b", "c"]), atol=2e-6)
    (record,) = caplog.records
    assert record.name == "jmm"
    assert record.levelno == logging.WARNING
    assert record.getMessage() == str(caught.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((0, 9, 3), np.uint8), "9x0 pixels"),
        (np.zeros((9, 9, 3), np.float32), "dtype float32"),
        (np.zeros((1, 300, 3), np.uint8), "aspect ratio"),
        (b"no picture", "no picture that Pillow knows"),
        (png(PICTURE)[:-60], "picture"),
        ("none.png", "none.png: cannot open the file"),
        (7, "int is no picture"),
        (None, "NoneType is no picture"),
    ],
    ids=str,
)
def test_bad_pictures(embedder: Embedder, bad: object, message: str) -> None:
    sources = [PICTURE, bad, PICTURE]
    with pytest.raises(InputError, match=f"^item 1: .*{message}") as caught:
        embedder.encode_images(sources)  # type: ignore[arg-type]
    assert caught.value.index == 1
    rows = embedder.encode_images(sources, on_error="nan")  # type: ignore[arg-type]
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
    np.testing.assert_allclose(rows[2], embedder.encode_images(PICTURE), atol=2e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_patches_that_are_not_finite(embedder: Embedder, value: float) -> None:
    patches = np.concatenate([PATCHES, PATCHES])
    patches[30, 7] = value
    with pytest.raises(InputError, match=rf"^item 1: patches\[6, 7\] is {value}"):
        embedder.encode_patches(patches, [GRID, GRID])
    rows = embedder.encode_patches(patches, [GRID, GRID], on_error="nan")
    assert np.isnan(rows).all(axis=1).tolist() == [False, True]
    np.testing.assert_allclose(rows[0], embedder.encode_patches(PATCHES, GRID), atol=2e-6)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([1, -4, -6], "multiples of 2"),
        ([1, 3, 8], "multiples of 2"),
        ([1, 24, 1], "multiples of 2"),
        ([2, 2, 6], "t=2; still pictures"),
        ([-1, -4, 6], "t=-1; still pictures"),
    ],
)
def test_grids_of_as_many_patches(embedder: Embedder, grid: list[int], message: str) -> None:
    with pytest.raises(InputError, match=f"^item 0: .*{message}"):
        embedder.encode_patches(PATCHES, grid)


def test_sides_beyond_the_limit(embedder: Embedder) -> None:
    patches = np.zeros((2 * 3286, 1176), np.float32)
    with pytest.raises(InputError, match="from 2 to 3284"):
        embedder.encode_patches(patches, [1, 2, 3286])


def test_items_longer_than_the_context() -> None:
    with Embedder(n_ctx=8, n_threads=1, min_pixels=784) as embedder:
        with pytest.raises(
            ContextOverflowError, match=r"^item 1: .* n_ctx is 8; shorten"
        ) as caught:
            embedder.encode_query(["a", "abc " * 50])
        assert caught.value.index == 1
        assert "the model allows 32768" in str(caught.value)
        with pytest.raises(ContextOverflowError, match=r"^item 0: .* n_ctx is 8; lower max_pixels"):
            embedder.encode_images([tiny.picture(6, 6)])
        rows = embedder.encode_query(["a", "abc " * 50], on_error="nan")
        assert np.isnan(rows).all(axis=1).tolist() == [False, True]
        assert np.isfinite(embedder.encode_images(tiny.picture(2, 2))).all()


def test_an_error_of_the_callers_generator_passes(embedder: Embedder) -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        embedder.encode_query(broken(), on_error="nan")


# --- text alone ---


def test_without_a_vision_tower(files: tuple[Path, Path]) -> None:
    with Embedder(files[0], n_threads=1) as embedder:
        vectors = embedder.encode_document(["a", "b"])
        assert embedder.info["mmproj"] is None
        for call in (
            lambda: embedder.encode_images([PICTURE]),
            lambda: embedder.encode_images([], on_error="nan"),
            lambda: embedder.encode_patches(PATCHES, GRID),
            lambda: embedder.encode_document(PICTURE),
        ):
            with pytest.raises(InputError, match=r"reads no pictures.*pass mmproj="):
                call()
        rows = embedder.encode_document(["a", PICTURE, "b"], on_error="nan")
        assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
        np.testing.assert_allclose(rows[[0, 2]], vectors, atol=2e-6)


def test_a_profile_of_texts_with_a_vision_tower(files: tuple[Path, Path]) -> None:
    with (
        Embedder(*files, profile="embeddinggemma", n_threads=1) as embedder,
        pytest.raises(InputError, match="profile embeddinggemma reads no pictures"),
    ):
        embedder.encode_images([PICTURE])
