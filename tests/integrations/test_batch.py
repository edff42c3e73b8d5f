"""Batches of a table: a bad row costs itself alone, and vectors are the Embedder's."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import (
    DecodeError,
    Embedder,
    InputError,
    JmmError,
    OutOfMemoryError,
    VisionEncoder,
    VisionTokens,
    demo,
)
from jmm.integrations import BatchEmbedder, BatchVisionEncoder
from subprocess_case import run
from support import tiny

PICTURES = [tiny.picture(4, 6), tiny.picture(6, 4, 1), tiny.picture(4, 4, 2)]
TEXTS = ["a red circle", "blue stripes"]
LOAD = functools.partial(Embedder, n_threads=1)


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with LOAD() as embedder:
        yield embedder


def png(picture: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def test_vectors_are_the_embedders(embedder: Embedder) -> None:
    batch = {"image": [png(picture) for picture in PICTURES], "id": np.arange(3)}
    table = BatchEmbedder(LOAD)(batch)
    assert list(table) == ["image", "id", "vector", "error"]
    assert table["vector"].dtype == np.float32
    np.testing.assert_array_equal(table["vector"], embedder.encode_images(PICTURES))
    assert table["error"].tolist() == ["", "", ""]
    assert table["id"] is batch["id"]


@pytest.mark.parametrize(
    ("kind", "method"), [("query", "encode_query"), ("document", "encode_document")]
)
def test_texts(kind: Any, method: str, embedder: Embedder) -> None:
    table = BatchEmbedder(LOAD, column="text", kind=kind)({"text": np.array(TEXTS)})
    np.testing.assert_array_equal(table["vector"], getattr(embedder, method)(TEXTS))


def test_columns_by_name() -> None:
    embed = BatchEmbedder(
        LOAD, column="page", output="v", tokens="t", error="why", multi_vector="both", drop=["page"]
    )
    assert list(embed({"page": PICTURES, "n": [1, 2, 3]})) == ["n", "v", "t", "why"]
    with pytest.raises(InputError, match=r"no column 'page'; the batch has 'image'"):
        embed({"image": PICTURES})


@pytest.mark.parametrize("bad", [b"no picture", None, "missing.png", np.zeros((0, 4), np.uint8)])
def test_a_bad_row_costs_itself_alone(bad: Any, embedder: Embedder) -> None:
    table = BatchEmbedder(LOAD, multi_vector="both")({"image": [PICTURES[0], bad, *PICTURES[1:]]})
    good = [0, 2, 3]
    right = embedder.encode_images(PICTURES, multi_vector="both")
    np.testing.assert_array_equal(table["vector"][good], right.pooled)
    assert np.isnan(table["vector"][1]).all()
    for row, item in zip(good, right.tokens, strict=True):
        np.testing.assert_array_equal(table["tokens"][row], item)
    assert table["tokens"][1].shape == (0, embedder.multi_vector_dim)
    with pytest.raises(InputError) as caught:
        embedder.encode_images([bad])
    assert table["error"].tolist() == ["", caught.value.message, "", ""]


def test_packed(embedder: Embedder) -> None:
    embed = BatchEmbedder(LOAD, multi_vector=True, layout="packed")
    table = embed({"image": [PICTURES[0], b"", *PICTURES[1:]]})
    right = embedder.encode_images(PICTURES, multi_vector=True)
    np.testing.assert_array_equal(table["tokens_values"], right.values)
    lengths = [len(right[0]), 0, len(right[1]), len(right[2])]
    assert np.diff(table["tokens_offsets"]).tolist() == lengths
    assert "vector" not in table


@pytest.mark.parametrize("rows", [[], [b"", b""]])
def test_without_a_good_row(rows: list[bytes], embedder: Embedder) -> None:
    table = BatchEmbedder(LOAD, multi_vector="both")({"image": rows})
    assert table["vector"].shape == (len(rows), embedder.dim)
    assert all(item.shape == (0, embedder.multi_vector_dim) for item in table["tokens"])
    assert all(table["error"])
    packed = BatchEmbedder(LOAD, multi_vector=True, layout="packed")({"image": rows})
    assert packed["tokens_values"].shape == (0, embedder.multi_vector_dim)
    assert packed["tokens_offsets"].tolist() == [0] * (len(rows) + 1)


def test_options_arrive(embedder: Embedder) -> None:
    table = BatchEmbedder(LOAD, multi_vector=True, pool_factor=3)({"image": PICTURES})
    right = embedder.encode_images(PICTURES, multi_vector=True, pool_factor=3)
    for row, item in zip(table["tokens"], right, strict=True):
        np.testing.assert_array_equal(row, item)
    short = BatchEmbedder(LOAD, truncate_dim=64)({"image": [*PICTURES, b""]})["vector"]
    np.testing.assert_array_equal(short[:3], embedder.encode_images(PICTURES, truncate_dim=64))
    assert short.shape == (4, 64)
    with pytest.raises(InputError, match="truncate_dim"):
        BatchEmbedder(LOAD, truncate_dim=1000)({"image": PICTURES})


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "pictures"},
        {"layout": "flat"},
        {"multi_vector": "yes"},
        {"drop": "image"},
        {"workers": 0},
        {"load": "model.gguf"},
        {"kind": "query", "multi_vector": True, "pool_factor": 2},
        {"truncate_dim": 128, "multi_vector": True},
        {"drop": None},
        {"drop": 5},
        {"column": None},
        {"output": 5},
        {"output": "error"},
        {"column": "error"},
        {"multi_vector": "both", "tokens": "vector"},
    ],
)
def test_what_is_not_allowed_fails_where_it_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BatchEmbedder(**arguments)


class Counted:
    """Counts what it loads, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> Embedder:
        self.calls.append(arguments)
        return LOAD()


def test_it_loads_late_and_once_and_pickles_unloaded() -> None:
    load = Counted()
    embed = BatchEmbedder(load)
    assert load.calls == []
    first = embed({"image": PICTURES})["vector"]
    again = embed({"image": PICTURES})["vector"]
    assert load.calls == [{}]
    copy = pickle.loads(pickle.dumps(BatchEmbedder(LOAD, batch_size=2)))
    assert repr(copy) == repr(BatchEmbedder(LOAD, batch_size=2))
    loaded = pickle.loads(pickle.dumps(copy))
    np.testing.assert_array_equal(loaded({"image": PICTURES})["vector"], first)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(loaded))({"image": PICTURES})["vector"], again
    )
    embed.close()
    np.testing.assert_array_equal(embed({"image": PICTURES})["vector"], first)
    assert len(load.calls) == 2


@pytest.mark.parametrize("kind", [DecodeError, OutOfMemoryError])
@pytest.mark.parametrize("in_a_row", [False, True])
def test_a_model_that_fails_for_good_is_loaded_again(
    kind: type[JmmError], in_a_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an assertion of ggml, at once or when a row is tried once more."""
    load = Counted()
    embed = BatchEmbedder(load)
    first = embed({"image": PICTURES})["vector"]

    def fail(self: Embedder, items: Any, *, on_error: str, **options: Any) -> Any:
        if in_a_row and on_error == "nan":
            return np.full((len(items), self.dim), np.nan, np.float32)
        self.close()
        raise kind("an assertion of ggml failed")

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "encode_images", fail)
        with pytest.raises(kind, match="an assertion of ggml failed"):
            embed({"image": PICTURES})
    np.testing.assert_array_equal(embed({"image": PICTURES})["vector"], first)
    assert len(load.calls) == 2


def test_an_error_that_leaves_the_model_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Counted()
    embed = BatchEmbedder(load)

    def fail(*_: object, **__: object) -> None:
        raise OutOfMemoryError("no memory for a batch")

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "encode_images", fail)
        with pytest.raises(OutOfMemoryError):
            embed({"image": PICTURES})
    embed({"image": PICTURES})
    assert len(load.calls) == 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"output": "error"}, "error"),
        ({"output": "x", "tokens": "x", "multi_vector": "both"}, "x"),
        (
            {"error": "t_values", "tokens": "t", "multi_vector": True, "layout": "packed"},
            "t_values",
        ),
    ],
)
def test_columns_that_would_be_written_twice(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=f"column '{name}' would be written twice"):
        BatchEmbedder(**options)
    BatchEmbedder(output="x", tokens="x", multi_vector=True)
    with pytest.raises(InputError, match="column 'error' would be written twice"):
        BatchVisionEncoder(Counted(), output="error")


def test_an_error_column_of_another_length() -> None:
    with pytest.raises(InputError, match="'image' has 2 rows and 'error' has 1"):
        BatchEmbedder()({"image": PICTURES[:2], "error": [""]})


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jmm.runtime.default_threads", lambda: 10)
    for workers, n_threads in ((1, 10), (3, 3), (20, 1)):
        load = Counted()
        BatchEmbedder(load, workers=workers)({"image": []})
        assert load.calls == [{"n_threads": n_threads}]


def test_two_stages(embedder: Embedder) -> None:
    """Pictures to tokens of the tower to vectors; a bad row keeps its first error."""
    model, mmproj = demo.paths()
    see = BatchVisionEncoder(functools.partial(VisionEncoder, mmproj, n_threads=1), drop=["image"])
    tell = BatchEmbedder(
        functools.partial(Embedder, model, mmproj, load_vision=False, n_threads=1),
        column="vision_tokens",
        kind="vision_tokens",
        drop=["vision_tokens"],
    )
    seen = see({"image": [PICTURES[0], b"no picture", *PICTURES[1:]]})
    assert list(seen) == ["vision_tokens", "error"]
    assert VisionTokens.from_bytes(seen["vision_tokens"][0]).values.shape[1] == embedder.dim
    assert seen["vision_tokens"][1] == b""
    table = tell(seen)
    np.testing.assert_array_equal(table["vector"][[0, 2, 3]], embedder.encode_images(PICTURES))
    assert np.isnan(table["vector"][1]).all()
    assert table["error"].tolist() == seen["error"].tolist()
    assert "no picture that Pillow knows" in table["error"][1]

    damaged = tell({"vision_tokens": [seen["vision_tokens"][0], b"jmm"]})
    np.testing.assert_array_equal(damaged["vector"][0], table["vector"][0])
    assert damaged["error"][0] == ""
    assert "not the bytes of vision tokens" in damaged["error"][1]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ([1, 2], "a batch is a dict of columns, and this is list"),
        (None, "a batch is a dict of columns, and this is NoneType"),
        ({"image": 5}, "column 'image' is int; rows are needed"),
        ({"image": "page.png"}, "column 'image' is str; rows are needed"),
        ({"image": PICTURES, "error": ["", ""]}, "'image' has 3 rows and 'error' has 2"),
        ({"image": PICTURES, "error": [""] * 4}, "'image' has 3 rows and 'error' has 4"),
        ({"image": PICTURES, "error": 5}, "column 'error' is int; rows are needed"),
    ],
)
def test_what_is_no_batch(batch: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        BatchEmbedder(LOAD)(batch)


def test_what_loads_no_model() -> None:
    for made in (BatchEmbedder, BatchVisionEncoder):
        with pytest.raises(InputError, match="load gave int; a model with encode"):
            made(lambda: 5)({"image": PICTURES})


def test_a_handler_embeds_while_its_thread_loads() -> None:
    models: list[Embedder] = []
    inner: list[np.ndarray] = []

    def load() -> Embedder:
        model = LOAD()
        models.append(model)
        if len(models) == 1:  # as a signal's handler would
            inner.append(embed({"image": PICTURES})["vector"])
        return model

    embed = BatchEmbedder(load)
    np.testing.assert_array_equal(embed({"image": PICTURES})["vector"], inner[0])
    assert len(models) == 2
    embed.close()
    for model in models:
        with pytest.raises(InputError, match="closed"):
            model.encode_query("a")


def test_a_forked_child_loads_its_own() -> None:
    run(
        """
from jmm.integrations import BatchEmbedder
loading, go = threading.Event(), threading.Event()

def load():
    loading.set()
    assert go.wait(60) or True
    return Embedder(n_threads=1)

def forked():
    pid = os.fork()
    if pid == 0:
        go.set()
        signal.alarm(60)
        table = embed({"image": [PICTURE]})
        os._exit(int(table["error"][0] != "" or not np.isfinite(table["vector"]).all()))
    assert os.waitpid(pid, 0)[1] == 0

PICTURE = tiny.picture(4, 6)
embed = BatchEmbedder(load)
thread = threading.Thread(target=lambda: embed({"image": [PICTURE]}))
thread.start()
loading.wait()
forked()  # while another thread holds the lock
go.set()
thread.join()
forked()  # with a model of the parent
"""
    )
