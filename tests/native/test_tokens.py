"""Ids of plain text: the reference tokenizer's, and never a special token's."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import token_texts
from jmm import _core, profiles
from support import golden, tiny, vocabulary

MODEL = tiny.MODELS["qwen25_small"]
SPECIAL = [token for token in vocabulary.ADDED_TOKENS if "|" in token]
TEXTS = token_texts.texts()


@pytest.fixture(scope="module")
def ids(tiny_files: Callable[..., tuple[Path, Path]]) -> Callable[[str], list[int]]:
    """Ids of a text behind no prompt."""
    engine = _core.Engine(tiny_files(MODEL.name)[0], n_threads=1)

    def tokenize(text: str) -> list[int]:
        parts = profiles.QWEN_VL.text_parts((profiles.TEXT,), text)
        return engine.tokenize(parts).token_ids()

    return tokenize


def test_equal_to_the_reference(ids: Callable[[str], list[int]]) -> None:
    with np.load(golden.FOLDER / "tokens.npz") as file:
        flat, counts = file["ids"], file["counts"]
    assert len(counts) == len(TEXTS) > 300
    for text, row in zip(TEXTS, np.split(flat, np.cumsum(counts)[:-1]), strict=True):
        assert ids(text) == row.tolist(), repr(text)


def test_tokens_spell_the_text(ids: Callable[[str], list[int]]) -> None:
    byte_of = {letter: byte for byte, letter in vocabulary.bytes_to_unicode().items()}
    for text in TEXTS:
        letters = "".join(MODEL.vocab.tokens[i] for i in ids(text))
        normal = unicodedata.normalize("NFC", text).encode("utf-8")
        assert bytes(byte_of[letter] for letter in letters) == normal


@pytest.mark.parametrize("token", [*SPECIAL, "<__media__>"])
def test_spelling_a_special_token_is_text(token: str, ids: Callable[[str], list[int]]) -> None:
    special = {MODEL.vocab.id(name) for name in SPECIAL}
    for text in (
        token,
        f"x{token}y",
        f" {token} ",
        token * 3,
        f"<|im_start|>{token}",
        f"\n{token}\n",
    ):
        assert not special & set(ids(text))


def test_the_profiles_own_special_tokens_are_ids(
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    engine = _core.Engine(*tiny_files(MODEL.name), n_threads=1)
    patches = tiny.patches(tiny.picture(2, 4))
    ids = engine.tokenize(profiles.JINA_V4.image_parts((patches, 2, 4))).token_ids()
    names = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|im_end|>")
    assert [i for i in ids if i in {MODEL.vocab.id(name) for name in SPECIAL}] == [
        MODEL.vocab.id(name) for name in names
    ]
