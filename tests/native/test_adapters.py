"""LoRA adapters: each gives the vectors of the model with its change merged into the weights."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError
from support import extras, gguf_writer, golden, tiny
from support.extras import WEIGHT

NAME = "qwen25_small"
MODEL = tiny.MODELS[NAME]
WEIGHTS = golden.weights(NAME)
PROJECTOR = extras.projector(MODEL)
TASKS = ("retrieval", "text-matching", "code")
PAIRS = {task: extras.adapter(MODEL, WEIGHTS, seed) for seed, task in enumerate(TASKS)}
RELATIVE = 1e-4

ITEMS = ["a red square", "13 blue boats " * 20, tiny.picture(4, 6), ["and", tiny.picture(6, 4)]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text.gguf, mmproj.gguf, one adapter per task, and a merged text model per task."""
    folder = tmp_path_factory.mktemp("adapters")
    gguf_writer.write_text(MODEL, WEIGHTS, folder / "text.gguf", extra=PROJECTOR.tensors())
    gguf_writer.write_mmproj(MODEL, WEIGHTS, folder / "mmproj.gguf")
    for task, pairs in PAIRS.items():
        gguf_writer.write_adapter(
            folder / f"{task}.gguf", extras.native_names(pairs), alpha=extras.ALPHA
        )
        weights, projector = extras.merged(WEIGHTS, PROJECTOR, pairs)
        gguf_writer.write_text(
            MODEL, weights, folder / f"{task}-merged.gguf", extra=projector.tensors()
        )
    return folder


def adapters(folder: Path) -> dict[str, Path]:
    return {task: folder / f"{task}.gguf" for task in TASKS}


def load(folder: Path, text: str = "text.gguf", **arguments: Any) -> Embedder:
    return Embedder(folder / text, folder / "mmproj.gguf", n_threads=2, **arguments)


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    with load(folder, adapters=adapters(folder)) as embedder:
        yield embedder


def relative(rows: np.ndarray, right: np.ndarray) -> float:
    return float((np.linalg.norm(rows - right, axis=-1) / np.linalg.norm(right, axis=-1)).max())


@pytest.mark.parametrize("task", TASKS)
def test_the_merged_model(task: str, folder: Path, embedder: Embedder) -> None:
    with load(folder, f"{task}-merged.gguf") as merged, load(folder) as base:
        for options in ({}, {"normalize": False}):
            right = merged.encode_document(ITEMS, **options)
            assert relative(base.encode_document(ITEMS, **options), right) > 0.1
            assert relative(embedder.encode_document(ITEMS, task=task, **options), right) < RELATIVE
            query = embedder.encode_query("a boat", task=task, **options)
            assert relative(query, merged.encode_query("a boat", **options)) < RELATIVE
            page = embedder.encode_images(ITEMS[2], task=task, **options)
            assert relative(page, merged.encode_images(ITEMS[2], **options)) < RELATIVE


@pytest.mark.parametrize("task", TASKS)
def test_token_vectors(task: str, folder: Path, embedder: Embedder) -> None:
    """The adapter changes the projector too: with the base's own they would be far off."""
    _, projector = extras.merged(WEIGHTS, PROJECTOR, PAIRS[task])
    assert relative(projector.weight, PROJECTOR.weight) > 0.1
    with load(folder, f"{task}-merged.gguf") as merged:
        right = merged.encode_document(ITEMS, multi_vector=True)
    found = embedder.encode_document(ITEMS, task=task, multi_vector=True)
    np.testing.assert_array_equal(found.offsets, right.offsets)
    assert relative(found.values, right.values) < RELATIVE
    streamed = embedder.encode_iter(ITEMS, task=task, multi_vector=True)
    np.testing.assert_array_equal(np.concatenate(list(streamed)), found.values)


@pytest.mark.parametrize("file_type", ["F16", "BF16", "Q8_0"])
def test_types(file_type: str, folder: Path, tmp_path: Path) -> None:
    pairs = extras.native_names(PAIRS["code"])
    if file_type == "Q8_0":  # rows of rank numbers are too short for it
        pairs.pop(WEIGHT)
        pairs = {name: (np.tile(a, (8, 1)), np.tile(b, 8)) for name, (a, b) in pairs.items()}
        pairs = {name: pair for name, pair in pairs.items() if not pair[0].shape[1] % 32}
        changed = {
            name: pair
            for name, pair in PAIRS["code"].items()
            if name != WEIGHT and next(gguf_writer.text_tensors({name: pair[0]}))[0] in pairs
        }
    else:
        changed = PAIRS["code"]
    path = gguf_writer.write_adapter(
        tmp_path / "adapter.gguf", pairs, alpha=extras.ALPHA, file_type=file_type
    )
    weights, projector = extras.merged(WEIGHTS, PROJECTOR, changed)
    text = gguf_writer.write_text(MODEL, weights, tmp_path / "t.gguf", extra=projector.tensors())
    with Embedder(text, n_threads=2) as merged:
        right = merged.encode_query(ITEMS[:2])
    with load(folder, adapters={"code": path}) as one:
        found = one.encode_query(ITEMS[:2])
        base = one.encode_query(ITEMS[:2])
    assert relative(found, right) < {"F16": 1e-3, "BF16": 1e-2, "Q8_0": 2e-2}[file_type]
    assert np.isfinite(base).all()


@pytest.mark.parametrize("alpha", [0.0, -6.0, 1.5])
def test_alpha(alpha: float, folder: Path, tmp_path: Path) -> None:
    """Of 0 means a factor of 1, as in llama.cpp."""
    pairs = PAIRS["code"]
    path = gguf_writer.write_adapter(tmp_path / "a.gguf", extras.native_names(pairs), alpha=alpha)
    weights, projector = extras.merged(WEIGHTS, PROJECTOR, pairs, alpha or float(extras.RANK))
    text = gguf_writer.write_text(MODEL, weights, tmp_path / "t.gguf", extra=projector.tensors())
    with Embedder(text, n_threads=2) as merged, load(folder, adapters={"code": path}) as one:
        for options in ({}, {"multi_vector": True}):
            right = merged.encode_query(ITEMS[1], **options)
            assert relative(one.encode_query(ITEMS[1], **options), right) < RELATIVE


def test_embeddings(folder: Path, tmp_path: Path) -> None:
    """llama.cpp keeps their pair as a [n_vocab, rank] and b [hidden, rank]."""
    rng = np.random.Generator(np.random.PCG64(5))
    low = rng.standard_normal((len(MODEL.vocab), extras.RANK)).astype(np.float32)
    high = (0.02 * rng.standard_normal((MODEL.hidden, extras.RANK))).astype(np.float32)
    path = gguf_writer.write_adapter(
        tmp_path / "a.gguf", {"token_embd.weight": (low, high)}, alpha=extras.ALPHA
    )
    name = "model.language_model.embed_tokens.weight"
    change = extras.ALPHA / extras.RANK * low.astype(np.float64) @ high.T
    weights = {**WEIGHTS, name: (WEIGHTS[name] + change).astype(np.float32)}
    gguf_writer.write_text(MODEL, weights, folder / "embeddings.gguf")
    with load(folder, "embeddings.gguf") as merged, load(folder) as base:
        right = merged.encode_document(ITEMS)
        assert relative(base.encode_document(ITEMS), right) > 0.1
    with load(folder, adapters={"a": path}) as adapted:
        assert relative(adapted.encode_document(ITEMS), right) < RELATIVE
        for item, vector in zip(ITEMS, right, strict=True):
            assert relative(adapted.encode_document([item])[0], vector) < RELATIVE


def test_rank_one(folder: Path, tmp_path: Path) -> None:
    """A half of one row has two axes all the same."""
    native = extras.native_names(PAIRS["code"])
    one = {
        name: (low[:1], np.ascontiguousarray(high[:, :1])) for name, (low, high) in native.items()
    }
    path = gguf_writer.write_adapter(tmp_path / "one.gguf", one, alpha=extras.ALPHA)
    rest = {
        name: (np.concatenate([low[:1], 0 * low[1:]]), high * extras.RANK)
        for name, (low, high) in native.items()
    }
    same = gguf_writer.write_adapter(tmp_path / "same.gguf", rest, alpha=extras.ALPHA)
    with load(folder, adapters={"one": path, "same": same}) as embedder:
        for options in ({}, {"multi_vector": True}):
            one_by_one = embedder.encode_query(ITEMS[0], task="one", **options)
            right = embedder.encode_query(ITEMS[0], task="same", **options)
            assert relative(one_by_one, right) < RELATIVE


def test_alpha_of_zero_is_no_scale(folder: Path, tmp_path: Path) -> None:
    """llama.cpp's rule, which holds for the projector as well."""
    pairs = extras.native_names(PAIRS["code"])
    paths = {
        str(alpha): gguf_writer.write_adapter(tmp_path / f"{alpha}.gguf", pairs, alpha=float(alpha))
        for alpha in (0, extras.RANK)
    }
    with load(folder, adapters=paths) as embedder:
        for options in ({}, {"multi_vector": True}):
            zero, rank = (embedder.encode_query(ITEMS[0], task=task, **options) for task in paths)
            np.testing.assert_array_equal(zero, rank)


def test_switching(folder: Path, embedder: Embedder) -> None:
    """Tasks in turn, over calls of equal shape: each has the bits of an embedder of its own."""
    own = {}
    for task in TASKS:
        with load(folder, adapters=adapters(folder), task=task) as fresh:
            assert fresh.info["task"] == task
            own[task] = [fresh.encode_document(item) for item in ITEMS]
    for task in (*TASKS, *TASKS[::-1], TASKS[0], TASKS[2]):
        for item, right in zip(ITEMS, own[task], strict=True):
            np.testing.assert_array_equal(embedder.encode_document(item, task=task), right)
    for i, item in enumerate(ITEMS):
        np.testing.assert_array_equal(embedder.encode_document(item), own[TASKS[0]][i])
        for task in TASKS:  # one item after the other, so that only the adapter changes
            vector = embedder.encode_document(item, task=task)
            np.testing.assert_array_equal(vector, own[task][i])


def test_tasks(folder: Path, embedder: Embedder) -> None:
    paths = {task: str(path) for task, path in adapters(folder).items()}
    assert embedder.info["adapters"] == paths
    assert embedder.info["tasks"] == TASKS
    with pytest.raises(InputError, match="task is 'other'; the adapters are for retrieval, text-"):
        embedder.encode_query("a", task="other")
    with pytest.raises(InputError, match="task is 'code'; the adapters are for mine"):
        load(folder, adapters={"mine": folder / "code.gguf"}, task="code")
    with load(folder, adapters={"mine": folder / "code.gguf"}) as mine:
        right = embedder.encode_query(ITEMS[0], task="code")
        np.testing.assert_array_equal(mine.encode_query(ITEMS[0]), right)
        np.testing.assert_array_equal(mine.encode_query(ITEMS[0], task="mine"), right)
    with load(folder, profile="jina-embeddings-v4") as plain:
        with pytest.raises(InputError, match="task is 'mine'; profile jina-embeddings-v4 has retr"):
            plain.encode_query("a", task="mine")
        assert plain.encode_document("a", task="code").shape == (MODEL.hidden,)


def test_prompts_follow_the_task(folder: Path) -> None:
    jina = {"profile": "jina-embeddings-v4"}
    with load(folder, adapters=adapters(folder), **jina) as adapted:
        for task, prompt in (("retrieval", "Passage: "), ("text-matching", "Query: ")):
            with load(folder, f"{task}-merged.gguf") as merged:
                right = merged.encode_query(prompt + ITEMS[0])
            assert relative(adapted.encode_document(ITEMS[0], task=task), right) < RELATIVE


def test_a_name_must_choose_prompts(folder: Path) -> None:
    """jina-embeddings-v4 has several tasks, each with its prompts; another name has none."""
    wrong = {"text_matching": folder / "text-matching.gguf"}
    with pytest.raises(InputError, match=r"adapter for 'text_matching'.*retrieval, text-matching"):
        load(folder, adapters=wrong, profile="jina-embeddings-v4")
    with load(folder, adapters=wrong) as plain:  # one prompt for all
        assert plain.info["tasks"] == ("text_matching",)


def test_none_is_the_base(folder: Path) -> None:
    with load(folder) as base, load(folder, adapters={}) as empty:
        assert empty.info["adapters"] == {}
        np.testing.assert_array_equal(base.encode_query(ITEMS[0]), empty.encode_query(ITEMS[0]))


def test_pickling(folder: Path, embedder: Embedder) -> None:
    with load(folder, adapters=adapters(folder), task="code") as coded:
        again = pickle.loads(pickle.dumps(coded))
    with again:
        assert again.info["task"] == "code"
        for task in (None, "retrieval"):
            found = again.encode_query(ITEMS[0], task=task)
            right = embedder.encode_query(ITEMS[0], task=task or "code")
            np.testing.assert_array_equal(found, right)


# --- files that are no adapter of the model ---


def refused(path: Path | str, message: str, folder: Path) -> None:
    """Demands the error, and that a right adapter loads afterwards."""
    with pytest.raises(ModelLoadError, match=message):
        load(folder, adapters={"good": folder / "code.gguf", "bad": path}).close()
    with load(folder, adapters={"good": folder / "code.gguf"}) as good:
        assert np.isfinite(good.encode_query("a")).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"general.type": "model"}, "general.type is 'model'"),
        ({"general.type": None}, "general.type is None"),
        ({"general.type": 1}, "general.type is 1"),
        ({"general.architecture": "llama"}, "general.architecture is 'llama'"),
        ({"adapter.type": "ia3"}, "adapter.type is 'ia3'"),
        ({"adapter.type": 5}, "adapter.type is 5"),
        ({"adapter.type": None}, "adapter.type is None"),
        ({"adapter.lora.alpha": None}, "adapter.lora.alpha is None"),
        ({"adapter.lora.alpha": 6}, "adapter.lora.alpha is 6"),
        ({"adapter.lora.alpha": "6"}, "adapter.lora.alpha is '6'"),
        ({"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha is nan"),
        ({"adapter.lora.alpha": float("inf")}, "adapter.lora.alpha is inf"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, "alora"),
        ({"adapter.alora.invocation_tokens": "x"}, "alora"),
    ],
)
def test_settings(settings: Any, message: str, folder: Path, tmp_path: Path) -> None:
    pairs = extras.native_names(PAIRS["code"])
    path = gguf_writer.write_adapter(tmp_path / "a.gguf", pairs, alpha=1, settings=settings)
    refused(path, re.escape(message), folder)


def test_other_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"no adapter at all")
    for path, message in (
        (folder / "text.gguf", "general.type is 'model'"),
        (folder / "mmproj.gguf", "general.type is 'mmproj'"),
        (tmp_path / "none.gguf", "no such file"),
        (tmp_path, "this is no file"),
        (tmp_path / "junk", "not a GGUF file"),
    ):
        refused(path, message, folder)


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_cut_short(fraction: float, folder: Path, tmp_path: Path) -> None:
    data = (folder / "code.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: int(len(data) * fraction)])
    refused(tmp_path / "cut.gguf", r"cut\.gguf: ", folder)


def _changed(kind: str) -> tuple[extras.Pairs, gguf_writer.Typed, str]:
    pairs = extras.native_names(PAIRS["code"])
    name = "blk.1.attn_q.weight"
    low, high = pairs[name]
    vocabulary = np.zeros((len(MODEL.vocab), extras.RANK), np.float32)
    extra: dict[str, tuple[np.ndarray, str]] = {}
    if kind in ("without a", "without b"):
        del pairs[name]
        extra = {f"{name}.lora_{'b' if kind[-1] == 'a' else 'a'}": (low, "F32")}
    elif kind in ("projector without a", "projector without b"):
        low, high = pairs.pop(WEIGHT)
        extra = (
            {f"{WEIGHT}.lora_b": (high, "F32")}
            if kind[-1] == "a"
            else {f"{WEIGHT}.lora_a": (low, "F32")}
        )
    elif kind == "whole numbers":
        del pairs[name]
        extra = {f"{name}.lora_a": (low, "I32"), f"{name}.lora_b": (high, "I32")}
    elif kind == "a norm":
        extra = {"blk.1.attn_norm.weight": (low[0], "F32")}
    elif kind == "another name":
        extra = {"blk.1.attn_q.weight.lora": (low, "F32")}
    else:
        changes = {
            "a too narrow": {name: (low[:, :-4], high)},
            "b too short": {name: (low, high[:-1])},
            "ranks differ": {name: (low, high[:, :-1])},
            "swapped": {name: (high, low)},
            "transposed": {name: (low.T, high.T)},
            "three axes": {name: (np.stack([low, low]), np.stack([high, high]))},
            "b of three axes": {name: (low, np.stack([high, high]))},
            "one axis": {name: (low[0], high[:, 0])},
            "rank 0": {name: (low[:0], high[:, :0])},
            "a is empty": {name: (low[:0], high)},
            "b is empty": {name: (low, high[:0])},
            "projector of rank 0": {WEIGHT: (pairs[WEIGHT][0][:0], pairs[WEIGHT][1][:, :0])},
            "projector of three axes": {WEIGHT: tuple(np.stack([x, x]) for x in pairs[WEIGHT])},
            "projector infinite": {WEIGHT: tuple(x * 1e30 for x in pairs[WEIGHT])},
            "no such layer": {"blk.9.attn_q.weight": (low, high)},
            "no such tensor": {"blk.1.attn_z.weight": (low, high)},
            "a vector": {"blk.1.attn_norm.weight": (low, high)},
            "a bias": {"blk.1.attn_q.bias": (low, high)},
            "a vector, in shape": {"blk.1.attn_norm.weight": (low, high[:1])},
            "a bias, in shape": {"blk.1.attn_q.bias": (low, high[:1])},
            "embeddings": {"token_embd.weight": (low, high)},
            "embeddings of two ranks": {"token_embd.weight": (vocabulary, high[:, :-1])},
            "projector too narrow": {WEIGHT: (pairs[WEIGHT][0][:, :-1], pairs[WEIGHT][1])},
            "projector ranks differ": {WEIGHT: (pairs[WEIGHT][0], pairs[WEIGHT][1][:, :-1])},
            "projector too short": {WEIGHT: (pairs[WEIGHT][0], pairs[WEIGHT][1][:-1])},
            "projector swapped": {WEIGHT: pairs[WEIGHT][::-1]},
            "projector of one axis": {WEIGHT: (pairs[WEIGHT][0][0], pairs[WEIGHT][1][:, 0])},
            "projector NaN": {WEIGHT: (pairs[WEIGHT][0] * np.nan, pairs[WEIGHT][1])},
            "projector overflows": {
                WEIGHT: tuple(half * np.float32(1e30) for half in pairs[WEIGHT])
            },
        }[kind]
        pairs |= {
            key: (np.ascontiguousarray(a), np.ascontiguousarray(b))
            for key, (a, b) in changes.items()
        }
    return pairs, extra, name


KINDS = (
    "without a",
    "without b",
    "projector without a",
    "projector without b",
    "whole numbers",
    "another name",
    "a too narrow",
    "b too short",
    "ranks differ",
    "swapped",
    "transposed",
    "three axes",
    "b of three axes",
    "one axis",
    "rank 0",
    "a is empty",
    "b is empty",
    "no such layer",
    "no such tensor",
    "a vector",
    "a bias",
    "a vector, in shape",
    "a bias, in shape",
    "a norm",
    "embeddings",
    "embeddings of two ranks",
    "projector too narrow",
    "projector ranks differ",
    "projector too short",
    "projector swapped",
    "projector of one axis",
    "projector of rank 0",
    "projector of three axes",
    "projector infinite",
    "projector NaN",
    "projector overflows",
)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_that_do_not_fit(kind: str, folder: Path, tmp_path: Path) -> None:
    pairs, extra, _ = _changed(kind)
    path = gguf_writer.write_adapter(tmp_path / "a.gguf", pairs, alpha=1, extra=extra)
    empty = kind.endswith(("rank 0", "is empty"))
    why = r"tensor \S+ has shape .*; it holds nothing" if empty else ""
    refused(path, rf"a\.gguf: {why}", folder)


def test_nothing_in_it(folder: Path, tmp_path: Path) -> None:
    path = gguf_writer.write_adapter(tmp_path / "a.gguf", {}, alpha=1)
    refused(path, r"a\.gguf: ", folder)


def test_numbers_that_are_not_finite(folder: Path, tmp_path: Path) -> None:
    """They reach the items of the task, and no others."""
    pairs = extras.native_names(PAIRS["code"])
    low, high = pairs["blk.0.attn_q.weight"]
    pairs["blk.0.attn_q.weight"] = (low * np.nan, high)
    path = gguf_writer.write_adapter(tmp_path / "a.gguf", pairs, alpha=1)
    with load(folder, adapters={"good": folder / "code.gguf", "bad": path}) as embedder:
        good = embedder.encode_document(ITEMS)
        assert np.isnan(embedder.encode_document(ITEMS, task="bad", on_error="nan")).all()
        np.testing.assert_array_equal(embedder.encode_document(ITEMS), good)


@pytest.mark.parametrize(
    "adapters", [["a.gguf"], "a.gguf", {1: "a.gguf"}, 3, {None: "a.gguf"}, {"a": None}, {"a": 7}]
)
def test_no_mapping(adapters: Any, folder: Path) -> None:
    with pytest.raises(InputError, match=r"adapters is|a model is the path"):
        load(folder, adapters=adapters).close()
