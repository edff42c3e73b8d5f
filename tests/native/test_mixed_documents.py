"""Documents of several texts and pictures: golden cases, prompts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import exactness
from jmm import ContextOverflowError, Embedder, InputError, profiles
from support import golden, tiny
from support.sequences import unit_mean

NAME = "qwen25_small"
PAGE, OTHER = tiny.picture(4, 6), tiny.picture(16, 10)
Files = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def jina(tiny_files: Files) -> Iterator[Embedder]:
    with Embedder(*tiny_files(NAME), profile="jina-embeddings-v4", n_threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def plain(tiny_files: Files) -> Iterator[Embedder]:
    with Embedder(*tiny_files(NAME), n_threads=2) as embedder:
        yield embedder


def document(case: golden.Case) -> list[Any]:
    pictures = iter(case.images)
    return [part if isinstance(part, str) else next(pictures) for part in case.parts]


def test_golden(tiny_name: str, tiny_files: Files) -> None:
    """Written as lists and tuples, alone and in company."""
    cases = [case for case in golden.load(tiny_name).values() if case.kind == "mixed"]
    assert cases
    with Embedder(*tiny_files(tiny_name), profile="qwen2.5-vl", n_threads=2) as embedder:
        for case in cases:
            item = document(case)
            company = ["a", item, PAGE, tuple(item), [PAGE], item]
            rows = embedder.encode_document(company)
            streamed = list(embedder.encode_iter(company))
            (alone,) = embedder.encode_document([item])
            for row in (alone, rows[1], rows[3], rows[5], streamed[1], streamed[3]):
                assert np.abs(row - case.pooled_all).max() <= exactness.COMPONENT
            halves = embedder.encode_document([item], normalize=False, multi_vector=False)
            assert np.abs(unit_mean(halves) - case.pooled_all).max() <= exactness.COMPONENT


def test_several_pictures_alone(jina: Embedder) -> None:
    """They have the prompt of a picture, and pool from the first marker to the last."""
    parts = [tiny.patches(PAGE), 4, 6], [tiny.patches(OTHER), 16, 10]
    sequence = jina._engine.tokenize(profiles.JINA_V4.image_parts(*map(tuple, parts)))
    vocab = tiny.MODELS[NAME].vocab
    start, end = vocab.id("<|vision_start|>"), vocab.id("<|vision_end|>")
    ids = sequence.token_ids()
    first, last = ids.index(start), len(ids) - 1 - ids[::-1].index(end)
    assert ids[first:].count(-1) == (24 + 160) // 4
    assert [ids.count(token) for token in (start, end)] == [2, 2]
    hidden = np.empty((len(ids), jina.dim), np.float32)
    pooled = np.empty((1, jina.dim), np.float32)
    jina._engine.forward([sequence], [(0, len(ids))], pooled, hidden)
    (row,) = jina.encode_document([[PAGE, OTHER]])
    assert np.abs(row - unit_mean(hidden, first, last + 1)).max() <= exactness.COMPONENT
    assert np.abs(row - unit_mean(hidden)).max() > 100 * exactness.COMPONENT


def test_one_picture_in_a_list_is_that_picture(jina: Embedder) -> None:
    (row,) = jina.encode_document([[PAGE]])
    np.testing.assert_array_equal(row, jina.encode_document(PAGE))
    np.testing.assert_array_equal(row, jina.encode_images(PAGE))


def test_prompt_of_a_mixture(jina: Embedder, plain: Embedder) -> None:
    """Of a document with a text: the chat's frame, nothing described, all rows pooled."""
    vocab = tiny.MODELS[NAME].vocab
    (row,) = jina.encode_document([["see ", PAGE]])
    sequence = jina._engine.tokenize(
        [
            ("<|im_start|>", True),
            ("user\nsee ", False),
            (tiny.patches(PAGE), 4, 6),
            ("<|im_end|>", True),
            ("\n", False),
        ]
    )
    assert sequence.token_ids()[0] == vocab.id("<|im_start|>")
    pooled = np.empty((1, jina.dim), np.float32)
    jina._engine.forward([sequence], [(0, sequence.n_tokens)], pooled)
    assert np.abs(row - unit_mean(pooled)).max() <= exactness.COMPONENT
    (bare,) = plain.encode_document([["see ", PAGE]])
    assert np.abs(row - bare).max() > 100 * exactness.COMPONENT


def test_a_text_in_a_list(plain: Embedder, jina: Embedder) -> None:
    (row,) = plain.encode_document([["a text"]])
    np.testing.assert_array_equal(row, plain.encode_document("a text"))
    (parts,) = plain.encode_document([["a ", "text"]])
    np.testing.assert_array_equal(parts, row)
    for pieces in (["a text"], ["a ", "text"]):  # "Passage: " is in front, as of a text
        (row,) = jina.encode_document([pieces])
        np.testing.assert_array_equal(row, jina.encode_document("a text"))


def test_order_and_place_count(plain: Embedder) -> None:
    items = [["a", PAGE, OTHER], ["a", OTHER, PAGE], [PAGE, "a", OTHER], [PAGE, OTHER, "a"]]
    rows = plain.encode_document(items)
    for i in range(len(items)):
        for k in range(i):
            assert np.abs(rows[i] - rows[k]).max() > 100 * exactness.COMPONENT


def test_markers_in_a_text_are_text(plain: Embedder) -> None:
    typed = "<|vision_start|><__media__><|image_pad|><|vision_end|>"
    (vectors,) = plain.encode_document([[typed, PAGE, typed]], normalize=False)
    sequence = plain._engine.tokenize([(typed, False), (tiny.patches(PAGE), 4, 6), (typed, False)])
    ids = sequence.token_ids()
    specials = [tiny.MODELS[NAME].vocab.id(f"<|vision_{end}|>") for end in ("start", "end")]
    assert [ids.count(token) for token in specials] == [1, 1]
    assert ids.count(-1) == 6
    pooled = np.empty((1, plain.dim), np.float32)
    plain._engine.forward([sequence], [(0, len(ids))], pooled)
    np.testing.assert_allclose(vectors, pooled[0], atol=exactness.COMPONENT)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ([], "empty list"),
        ((), "empty list"),
        ([["a", PAGE]], "not of lists"),
        (["a", ["b"]], "not of lists"),
        (["a", ("b", PAGE)], "not of lists"),
        (["a", None], "a text is a str"),
        (["a", 3], "a text is a str"),
        (["a", b"no picture"], "picture|image"),
        (["a", Path("/no/such/file.png")], "no/such"),
        (["a", np.zeros((4, 4, 5), np.uint8)], "array|shape"),
        (["a", np.zeros((28, 28, 3), np.float32)], "uint8"),
        (["a", "\ud800"], "surrogate"),
        ([""], "empty"),
        (["", ""], "empty"),
        ({"a": 1}, "a text is a str"),
        ({"a"}, "a text is a str"),
    ],
)
def test_bad_documents(item: Any, message: str, plain: Embedder) -> None:
    items = ["good", [PAGE, "good"], item, "good"]
    for call in (
        lambda: plain.encode_document(items),
        lambda: list(plain.encode_iter(items)),
        lambda: plain.encode_document(items, multi_vector=False, batch_size=1),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert caught.value.index == 2
    rows = plain.encode_document(items, on_error="nan")
    assert np.isnan(rows).all(axis=1).tolist() == [False, False, True, False]
    right = plain.encode_document([items[0], items[1], items[3]])
    assert np.abs(rows[[0, 1, 3]] - right).max() <= exactness.COMPONENT


def test_empty_texts_beside_a_picture(plain: Embedder) -> None:
    (row,) = plain.encode_document([["", PAGE, ""]])
    np.testing.assert_array_equal(row, plain.encode_images(PAGE))


def test_too_long(tiny_files: Files) -> None:
    with Embedder(*tiny_files(NAME), n_ctx=100, n_threads=2) as small:
        with pytest.raises(ContextOverflowError) as caught:
            small.encode_document(["a", [OTHER, OTHER, OTHER, "a"]])
        assert caught.value.index == 1
        assert small.encode_document([[OTHER, OTHER, "a"]]).shape == (1, 64)


def test_more_pictures_than_anyone_has(plain: Embedder) -> None:
    (row,) = plain.encode_document([["a", *[PAGE] * 70]])
    assert np.isfinite(row).all()
    assert abs(np.linalg.norm(row) - 1) < 1e-5


def test_a_profile_that_mixes_nothing(tiny_files: Files) -> None:
    unmixed = replace(profiles.QWEN_VL, name="unmixed", mixed=None)
    with (
        mock.patch.dict(profiles.PROFILES, {"unmixed": unmixed}),
        Embedder(*tiny_files(NAME), profile="unmixed", n_threads=2) as embedder,
    ):
        with pytest.raises(InputError, match="unmixed reads no documents of texts and") as caught:
            embedder.encode_document(["a", ["a", PAGE]])
        assert caught.value.index == 1
        assert embedder.encode_document([[PAGE, PAGE]]).shape == (1, 64)


def test_a_model_that_reads_no_pictures(tiny_files: Files) -> None:
    with Embedder(tiny_files(NAME)[0], n_threads=2) as text_alone:
        for item in (["a", PAGE], [PAGE], PAGE):
            with pytest.raises(InputError, match="mmproj") as caught:
                text_alone.encode_document(["a", item])
            assert caught.value.index == 1
        assert text_alone.encode_document([["a", "b"]]).shape == (1, 64)


def test_a_path_is_a_picture_and_a_str_a_text(plain: Embedder, tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "page.png"
    Image.fromarray(PAGE).save(path)
    (row, named) = plain.encode_document([["a", path], ["a", str(path)]])
    (right,) = plain.encode_document([["a", PAGE]])
    np.testing.assert_allclose(row, right, atol=exactness.COMPONENT)
    assert np.abs(named - right).max() > 100 * exactness.COMPONENT
