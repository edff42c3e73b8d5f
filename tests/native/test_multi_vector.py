"""Token vectors: the projector on hidden states that transformers computed in double."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError, MultiVector, NonFiniteError, maxsim
from support import extras, gguf_writer, golden, tiny
from support.extras import BIAS, WEIGHT
from support.sequences import PASSAGE_PREFIX, QUERY_PREFIX

NAME = "qwen25_small"
MODEL = tiny.MODELS[NAME]
PROJECTOR = extras.projector(MODEL)
TOLERANCE = 2e-5
Files = tuple[Path, Path]


def write(folder: Path, name: str = NAME, **extra: gguf_writer.Typed) -> Files:
    """A model with further tensors in its ``text`` or ``mmproj`` file."""
    model, weights = tiny.MODELS[name], golden.weights(name)
    return (
        gguf_writer.write_text(model, weights, folder / "text.gguf", extra=extra.get("text")),
        gguf_writer.write_mmproj(model, weights, folder / "mmproj.gguf", extra=extra.get("mmproj")),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write(tmp_path_factory.mktemp("files"), text=PROJECTOR.tensors())


@pytest.fixture(scope="module")
def jina(files: Files) -> Iterator[Embedder]:
    with Embedder(*files, profile="jina-embeddings-v4", n_threads=2) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def plain(files: Files) -> Iterator[Embedder]:
    with Embedder(*files, n_threads=2) as embedder:
        yield embedder


def item(case: golden.Case) -> Any:
    """What to pass as one item."""
    if case.kind == "text":
        return (case.text or "").removeprefix(case.prefix)
    if case.kind != "mixed":
        return case.images[0] if case.original is None else case.original
    pictures = iter(case.images)
    return [part if isinstance(part, str) else next(pictures) for part in case.parts]


def error(vectors: Any, case: golden.Case, projector: extras.Projector = PROJECTOR) -> float:
    """The largest error of a component; demands one row per token, each of unit length."""
    assert vectors.shape == (len(case.ids), extras.DIM)
    assert vectors.dtype == np.float32
    return float(np.abs(vectors[case.rows] - projector(case.hidden)).max())


def cases(*kinds: str) -> list[golden.Case]:
    return [
        case
        for case in golden.load(NAME).values()
        if case.kind in kinds and case.grids != [(2, 2)]  # below the processor's least area
    ]


def test_of_pictures(jina: Embedder) -> None:
    wanted = cases("image", "resized")
    for encode in (jina.encode_images, jina.encode_document):
        for case in wanted:
            assert error(encode(item(case), multi_vector=True), case) <= TOLERANCE
        many = encode([item(case) for case in wanted], multi_vector=True)
        for case, vectors in zip(wanted, many, strict=True):
            assert error(vectors, case) <= TOLERANCE


def test_of_patches(jina: Embedder) -> None:
    wanted = [case for case in golden.load(NAME).values() if case.kind == "image"]
    patches = np.concatenate([case.patches() for case in wanted])
    grids = [(1, *case.grids[0]) for case in wanted]
    many = jina.encode_patches(patches, grids, multi_vector=True)
    for case, vectors in zip(wanted, many, strict=True):
        assert error(vectors, case) <= TOLERANCE
    one = jina.encode_patches(wanted[0].patches(), grids[0], multi_vector=True)
    assert error(one, wanted[0]) <= TOLERANCE


@pytest.mark.parametrize("prefix", [QUERY_PREFIX, PASSAGE_PREFIX])
def test_of_texts(prefix: str, jina: Embedder) -> None:
    wanted = [case for case in cases("text") if case.prefix == prefix and item(case)]
    encode = jina.encode_query if prefix == QUERY_PREFIX else jina.encode_document
    assert wanted
    for case in wanted:
        assert error(encode(item(case), multi_vector=True), case) <= TOLERANCE
    many = encode([item(case) for case in wanted], multi_vector=True, batch_size=2)
    for case, vectors in zip(wanted, many, strict=True):
        assert error(vectors, case) <= TOLERANCE


def test_of_texts_pictures_and_both(plain: Embedder) -> None:
    wanted = [case for case in cases("text", "mixed") if case.text != ""]
    items = [case.text if case.text else item(case) for case in wanted]
    many = plain.encode_document(items, multi_vector=True)
    streamed = list(plain.encode_iter(iter(items), multi_vector=True))
    lengths = [len(case.ids) for case in wanted]
    assert isinstance(many, MultiVector)
    np.testing.assert_array_equal(many.offsets, np.cumsum([0, *lengths]))
    for case, vectors, one in zip(wanted, many, streamed, strict=True):
        assert error(vectors, case) <= TOLERANCE
        assert error(one, case) <= TOLERANCE


def test_without_normalisation(plain: Embedder) -> None:
    case = golden.load(NAME)["sentence"]
    vectors = plain.encode_query(case.text, multi_vector=True, normalize=False)
    right = PROJECTOR(case.hidden, normalize=False)
    assert np.abs(np.linalg.norm(right, axis=1) - 1).min() > 0.01
    assert np.abs(vectors - right).max() <= TOLERANCE * np.abs(right).max()


def test_of_nothing(plain: Embedder) -> None:
    vectors = plain.encode_query([], multi_vector=True)
    assert isinstance(vectors, MultiVector)
    assert vectors.values.shape == (0, extras.DIM)
    assert vectors.offsets.tolist() == [0]
    assert list(plain.encode_iter([], multi_vector=True)) == []


def test_more_items_than_a_window_holds(plain: Embedder) -> None:
    texts = [golden.load(NAME)["short"].text, golden.load(NAME)["one_token"].text] * 300
    vectors = plain.encode_query(texts, multi_vector=True)
    assert vectors.n_tokens.tolist() == [6, 1] * 300
    for i in (0, 1, 255, 256, 511, 598, 599):
        case = golden.load(NAME)["one_token" if i % 2 else "short"]
        assert error(vectors[i], case) <= TOLERANCE


def test_a_bad_item_has_no_tokens(plain: Embedder) -> None:
    case = golden.load(NAME)["mixed"]
    items = [b"no picture", item(case), "", item(case), "a" * 40_000, item(case)]
    vectors = plain.encode_document(items, multi_vector=True, on_error="nan")
    assert vectors.n_tokens.tolist() == [0, len(case.ids)] * 3
    streamed = list(plain.encode_iter(items, multi_vector=True, on_error="nan"))
    for i in (1, 3, 5):
        assert error(vectors[i], case) <= TOLERANCE
        assert error(streamed[i], case) <= TOLERANCE
        assert streamed[i - 1].shape == (0, extras.DIM)
    alone = plain.encode_document(items[0], multi_vector=True, on_error="nan")
    assert alone.shape == (0, extras.DIM)
    with pytest.raises(InputError) as caught:
        plain.encode_document(items[1:], multi_vector=True)
    assert caught.value.index == 1


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_an_item_that_fails_while_it_runs(batch_size: int | None, tmp_path: Path) -> None:
    token = MODEL.vocab.tokens.index("z")
    weights = {name: array.copy() for name, array in golden.weights(NAME).items()}
    weights["model.language_model.embed_tokens.weight"][token, 5] = np.nan
    text = gguf_writer.write_text(MODEL, weights, tmp_path / "text.gguf", extra=PROJECTOR.tensors())
    case = golden.load(NAME)["sentence"]
    assert case.text is not None
    items = [case.text, f"{case.text} z", "z", case.text, "z z", case.text]
    options: Any = {"multi_vector": True, "batch_size": batch_size}
    with Embedder(text, n_threads=2) as embedder:
        vectors = embedder.encode_query(items, **options, on_error="nan")
        lengths = [len(case.ids), 0, 0, len(case.ids), 0, len(case.ids)]
        assert vectors.n_tokens.tolist() == lengths
        for i in (0, 3, 5):
            assert error(vectors[i], case) <= TOLERANCE
        with pytest.raises(NonFiniteError) as caught:
            embedder.encode_query(items, **options)
        assert caught.value.index in (1, 2, 4)
        with pytest.raises(NonFiniteError) as caught:
            list(embedder.encode_iter(items, kind="query", **options))
        assert caught.value.index in (1, 2, 4)


@pytest.mark.parametrize("weight", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("bias", ["F32", "F16", "BF16"])
def test_types(weight: str, bias: str, files: Files, tmp_path: Path) -> None:
    rounding = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8}
    path = gguf_writer.write_projector(tmp_path / "p.gguf", PROJECTOR.tensors(weight, bias))
    case = golden.load(NAME)["sentence"]
    stored = extras.Projector(
        _round(PROJECTOR.weight, rounding[weight]), _round(PROJECTOR.bias, rounding[bias])
    )
    with Embedder(*files, projector=path, n_threads=2) as embedder:
        vectors = embedder.encode_query(case.text, multi_vector=True)
    assert error(vectors, case, stored) <= TOLERANCE
    if weight != "F32":
        assert error(vectors, case, PROJECTOR) > TOLERANCE


def _round(values: np.ndarray, half_unit: float) -> np.ndarray:
    """To the nearest number of a format, ties to even; none here is subnormal."""
    if half_unit == 0:
        return values
    mantissa, exponent = np.frexp(values.astype(np.float64))
    scale = 0.5 / half_unit
    return np.ldexp(np.rint(mantissa * scale * 2) / (scale * 2), exponent).astype(np.float32)


@pytest.mark.parametrize("where", ["text", "mmproj"])
def test_projector_of_each_file(where: str, tmp_path: Path) -> None:
    """Guards patch 0021 (in "text"): llama.cpp counts the tensors that it has used."""
    case = golden.load(NAME)["sentence"]
    with Embedder(*write(tmp_path, **{where: PROJECTOR.tensors()}), n_threads=2) as embedder:
        assert embedder.multi_vector_dim == extras.DIM
        assert embedder.info["multi_vector_dim"] == extras.DIM
        assert error(embedder.encode_query(case.text, multi_vector=True), case) <= TOLERANCE
        pooled = embedder.encode_query(case.text)
        assert np.abs(pooled - case.pooled_all).max() <= 2e-6


def test_a_file_of_its_own_goes_first(files: Files, tmp_path: Path) -> None:
    other = extras.projector(MODEL, seed=1)
    path = gguf_writer.write_projector(tmp_path / "projector.gguf", other.tensors())
    case = golden.load(NAME)["sentence"]
    with Embedder(*files, projector=path, n_threads=2) as embedder:
        assert error(embedder.encode_query(case.text, multi_vector=True), case, other) <= TOLERANCE


def test_a_projector_in_a_quantised_file(tmp_path: Path) -> None:
    path = gguf_writer.write_text(
        MODEL,
        golden.weights(NAME),
        tmp_path / "text.gguf",
        "Q8_0",
        extra=PROJECTOR.tensors("F16"),
    )
    case = golden.load(NAME)["sentence"]
    with Embedder(path, n_threads=2) as embedder:
        vectors = embedder.encode_query(case.text, multi_vector=True)
    assert (vectors * PROJECTOR(case.hidden)).sum(1).min() > 0.99


def test_a_model_without(tiny_files: Callable[..., Files]) -> None:
    with Embedder(*tiny_files(NAME), n_threads=2) as embedder:
        assert embedder.multi_vector_dim is None
        message = f"no token vectors.*{re.escape(WEIGHT)}.*projector="
        for call in (
            lambda: embedder.encode_query("a", multi_vector=True),
            lambda: embedder.encode_images([], multi_vector=True),
            lambda: next(iter(embedder.encode_iter(["a"], multi_vector=True))),
        ):
            with pytest.raises(InputError, match=message):
                call()
        assert embedder.encode_query("a").shape == (MODEL.hidden,)


def _damage(kind: str) -> dict[str, tuple[np.ndarray, str]]:
    weight, bias = PROJECTOR.weight.copy(), PROJECTOR.bias.copy()
    if kind == "NaN":
        weight[3, 5] = np.nan
    if kind == "infinity in the bias":
        bias[-1] = np.inf
    changed: dict[str, dict[str, tuple[np.ndarray, str]]] = {
        "one axis": {WEIGHT: (weight[0], "F32")},
        "three axes": {WEIGHT: (np.stack([weight, weight]), "F32")},
        "transposed": {WEIGHT: (np.ascontiguousarray(weight.T), "F32")},
        "too narrow": {WEIGHT: (np.ascontiguousarray(weight[:, :-4]), "F32")},
        "no dimension": {WEIGHT: (weight[:0], "F32"), BIAS: (bias[:0], "F32")},
        "no columns": {WEIGHT: (weight[:, :0], "F32")},
        "an empty bias": {BIAS: (bias[:0], "F32")},
        "quantised": {WEIGHT: (weight, "Q8_0")},
        "whole numbers": {WEIGHT: (weight, "I32")},
        "another bias": {BIAS: (bias[:-1], "F32")},
        "bias of two axes": {BIAS: (np.stack([bias, bias]), "F32")},
    }
    tensors = {WEIGHT: (weight, "F32"), BIAS: (bias, "F32")} | changed.get(kind, {})
    missing = {"no weight": WEIGHT, "no bias": BIAS}
    tensors.pop(missing.get(kind, ""), None)
    return tensors


DAMAGES = (
    "one axis",
    "three axes",
    "transposed",
    "too narrow",
    "no dimension",
    "no columns",
    "an empty bias",
    "quantised",
    "whole numbers",
    "another bias",
    "bias of two axes",
    "NaN",
    "infinity in the bias",
    "no bias",
)


@pytest.mark.parametrize(
    ("where", "kind"),
    [("own", "no weight"), *((where, kind) for where in ("text", "own") for kind in DAMAGES)],
)
def test_unusable(where: str, kind: str, files: Files, tmp_path: Path) -> None:
    if where == "text":
        text, options = write(tmp_path, text=_damage(kind))[0], {}
    else:
        text = files[0]
        options = {"projector": gguf_writer.write_projector(tmp_path / "p.gguf", _damage(kind))}
    named = "multi_vector_projector|hidden states have"
    with pytest.raises(ModelLoadError, match=named):
        Embedder(text, **options).close()


def test_one_dimension(files: Files, tmp_path: Path) -> None:
    """A weight of one row has two axes all the same."""
    tensors = {WEIGHT: (PROJECTOR.weight[:1], "F32"), BIAS: (PROJECTOR.bias[:1], "F32")}
    path = gguf_writer.write_projector(tmp_path / "p.gguf", tensors)
    with Embedder(files[0], projector=path, n_threads=1) as embedder:
        assert embedder.multi_vector_dim == 1
        vectors = embedder.encode_query("a", multi_vector=True, normalize=False)
    with Embedder(files[0], n_threads=1) as embedder:
        right = embedder.encode_query("a", multi_vector=True, normalize=False)
    np.testing.assert_allclose(vectors, right[:, :1], atol=2e-5)


def test_maxsim(plain: Embedder) -> None:
    queries = ["a red square", "13 blue boats", "z"]
    documents = ["a text of boats", tiny.picture(4, 6), ["both", tiny.picture(6, 4), "of them"]]
    q = plain.encode_query(queries, multi_vector=True)
    d = plain.encode_document(documents, multi_vector=True)
    right = [[(a.astype(np.float64) @ b.T).max(1).sum() for b in d] for a in q]
    np.testing.assert_allclose(maxsim(q, d), right, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "binary"}, "quantize"),
        ({"precision": "int8", "ranges": np.ones((2, 16), np.float32)}, "quantize"),
        ({"truncate_dim": 8}, "not truncated"),
        ({"truncate_dim": extras.DIM}, "not truncated"),
    ],
)
def test_options_for_pooled_rows(options: Any, message: str, plain: Embedder) -> None:
    for call in (
        lambda: plain.encode_query("a", multi_vector=True, **options),
        lambda: next(iter(plain.encode_iter(["a"], multi_vector=True, **options))),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_both_of_one_pass(plain: Embedder) -> None:
    """The bits of the two calls, for the rows of one."""
    items = ["a text", tiny.picture(4, 6), "another, longer text", ["and ", tiny.picture(6, 4)]]
    pooled = plain.encode_document(items, truncate_dim=16)
    tokens = plain.encode_document(items, multi_vector=True)
    before = plain._engine.n_rows
    both = plain.encode_document(items, multi_vector="both", truncate_dim=16)
    assert plain._engine.n_rows - before == len(tokens.values)
    np.testing.assert_array_equal(both.pooled, pooled)
    np.testing.assert_array_equal(both.tokens.values, tokens.values)
    np.testing.assert_array_equal(both.tokens.offsets, tokens.offsets)
    one = plain.encode_images(items[1], multi_vector="both")
    np.testing.assert_array_equal(one.pooled, plain.encode_images(items[1]))
    np.testing.assert_array_equal(one.tokens, plain.encode_images(items[1], multi_vector=True))
    streamed = list(plain.encode_iter(items, multi_vector="both", truncate_dim=16))
    for found, vector, rows in zip(streamed, pooled, tokens, strict=True):
        np.testing.assert_array_equal(found.pooled, vector)
        np.testing.assert_array_equal(found.tokens, rows)
    bad = plain.encode_document(["a text", ""], multi_vector="both", on_error="nan")
    assert np.isnan(bad.pooled).all(axis=1).tolist() == [False, True]
    assert np.diff(bad.tokens.offsets).tolist() == [len(tokens[0]), 0]
