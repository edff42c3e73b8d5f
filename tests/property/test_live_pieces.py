"""Texts, pictures, tokens and junk through one live engine: each item as if it were alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jmm import BothVectors, Embedder, InputError, JmmError, MultiVector, VisionTokens
from support import checkpoint, fuzz, tiny

MARKERS = (
    "<__media__>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|im_start|>user\n",
    "<|im_end|>\n",
    "<|endoftext|>",
    "<|vision_start|><|image_pad|><|vision_end|>",
    "Query: ",
    "Passage: ",
    "</s>",
)
JUNK = (None, 3, 1.5, b"", b"no picture", object, {}, "\ud800", "", np.zeros((2, 2, 5), np.uint8))
SIDES = (14, 28, 30, 56, 84, 100)
OPTIONS = {
    "task": (None, *checkpoint.TASKS, "another"),
    "multi_vector": (False, False, True, "both"),
    "pool_factor": (None, None, None, 1, 3),
    "truncate_dim": (None, None, *checkpoint.DIMS, 63),
    "normalize": (True, True, False),
    "precision": ("float32", "float32", "float32", "binary", "ubinary"),
    "batch_size": (None, 1, 2, 300),
    "on_error": ("raise", "nan", "nan"),
}


class Picture(NamedTuple):
    """How a picture comes; two of the same sides and seed are the same."""

    form: str
    height: int
    width: int
    seed: int

    def make(self, embedder: Embedder) -> Any:
        array = tiny.pixels(self.height, self.width, self.seed)
        if self.form == "array":
            return array
        if self.form == "tokens":
            return embedder.encode_vision(array)
        if self.form == "of another tower":
            return VisionTokens(np.ones((6, embedder.dim), np.float32), (4, 6), "0")
        image = Image.fromarray(array)
        if self.form == "image":
            return image
        file = io.BytesIO()
        image.save(file, "png")
        return file.getvalue() if self.form == "png" else file.getvalue()[:-100]


FORMS = ("array", "array", "image", "png", "tokens", "tokens", "of another tower", "cut short")
PICTURES = st.builds(
    Picture,
    st.sampled_from(FORMS),
    st.sampled_from(SIDES),
    st.sampled_from(SIDES),
    st.integers(0, 2),
)
TEXTS = (
    st.text(max_size=30)
    | st.lists(st.sampled_from((*MARKERS, "a", " red", "0")), max_size=5).map("".join)
    | st.integers(1, 700).map(lambda n: "a 7 " * n)
)
PIECES = TEXTS | PICTURES | st.sampled_from(JUNK)
ITEMS = st.one_of(PIECES, PIECES, st.lists(TEXTS | PICTURES, max_size=5), st.lists(PIECES))
METHODS = ("encode_document", "encode_document", "encode_query", "encode_images", "encode_iter")


class Call(NamedTuple):
    method: str
    items: list[Any]
    options: dict[str, Any]

    def run(self, embedder: Embedder) -> list[Any]:
        """Per item its vectors, in a list; the error of a call that fails passes."""
        items = [made(item, embedder) for item in self.items]
        options = dict(self.options)
        if self.method == "encode_query":
            options.pop("pool_factor", None)
        result = getattr(embedder, self.method)(items, **options)
        if self.method == "encode_iter":
            return [parts(row) for row in result]
        if isinstance(result, BothVectors):
            return [parts(BothVectors(*pair)) for pair in zip(*result, strict=True)]
        assert isinstance(result, MultiVector | np.ndarray)
        return [parts(row) for row in result]

    def of(self, items: list[Any]) -> Call:
        return self._replace(items=items, options=self.options | {"on_error": "raise"})


def made(item: Any, embedder: Embedder) -> Any:
    if isinstance(item, list):
        return [made(piece, embedder) for piece in item]
    return item.make(embedder) if isinstance(item, Picture) else item


def parts(row: Any) -> list[Any]:
    return list(row) if isinstance(row, BothVectors) else [row]


def is_missing(row: list[Any]) -> bool:
    """What `on_error="nan"` leaves: a row of NaN, or no token vectors."""
    return all(np.isnan(values).all() if values.ndim == 1 else not len(values) for values in row)


def alone(call: Call, item: Any, embedder: Embedder) -> Any:
    rows = fuzz.outcome(lambda: call.of([item]).run(embedder))
    return rows if isinstance(rows, JmmError) else rows[0]


CALLS = st.builds(
    Call,
    st.sampled_from(METHODS),
    st.lists(ITEMS, max_size=6),
    st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(values) for name, values in OPTIONS.items()}
    ),
)


@pytest.fixture(scope="module")
def embedders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedder, Embedder]]:
    """One for all calls, and one that sees an item at a time."""
    folder = fuzz.jina(tmp_path_factory.mktemp("pieces"))
    with fuzz.load(folder) as live, fuzz.load(folder) as single:
        yield live, single


@fuzz.examples(30)
@given(st.lists(CALLS, min_size=1, max_size=4))
def test_calls(embedders: tuple[Embedder, Embedder], calls: list[Call]) -> None:
    live, single = embedders
    for call in calls:
        check(call, live, single)


def check(call: Call, live: Embedder, single: Embedder) -> None:
    rows = fuzz.outcome(lambda: call.run(live), counted=True)
    allowed = fuzz.outcome(lambda: call._replace(items=[good(call.method)]).run(single))
    if isinstance(allowed, JmmError):
        assert type(rows) is type(allowed) is InputError
        assert rows.index is None
        return
    wanted = [alone(call, item, single) for item in call.items]
    bad = [index for index, row in enumerate(wanted) if isinstance(row, JmmError)]
    if bad and call.options.get("on_error", "raise") == "raise":
        assert type(rows) is type(wanted[bad[0]])
        assert rows.index == bad[0]
        return
    assert len(rows) == len(wanted)
    for row, right in zip(rows, wanted, strict=True):
        if isinstance(right, JmmError):
            assert is_missing(row)
            continue
        assert len(row) == len(right)
        for values, right_values in zip(row, right, strict=True):
            np.testing.assert_array_equal(values, right_values)


def good(method: str) -> Any:
    return Picture("array", 56, 56, 0) if method == "encode_images" else "a"
