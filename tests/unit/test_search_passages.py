"""Long texts are cut into passages that lose nothing and fit."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmm.search.passages import PASSAGE_CHARS, most_bytes, split

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from(" \n\t.!?。\u0958\U0001d160"))


@given(TEXTS, st.integers(16, 200), st.integers(1, 40))
def test_passages_are_the_text_in_pieces(text: str, max_bytes: int, max_chars: int) -> None:
    passages = list(split(text, max_bytes, max_chars))
    stop = 0
    for passage, start in passages:
        assert text[stop:start].strip() == ""
        assert text[start : start + len(passage)] == passage
        assert passage == passage.strip() != ""
        assert len(passage) <= max_chars
        assert len(unicodedata.normalize("NFC", passage).encode()) <= max_bytes
        stop = start + len(passage)
    assert text[stop:].strip() == ""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("aaaa aaaa.\n\nbbbb. bb\nb bbbb", "aaaa aaaa."),
        ("aaaa aaaa aaa\nbbbb. bb b bb", "aaaa aaaa aaa"),
        ("aaaa aaaa aaa. bbbb bb bbbbb", "aaaa aaaa aaa."),
        ("aaaa aaaa aaa bbbbbbbbbbbbbbb", "aaaa aaaa aaa"),
        ("aaaa。aaaaaaaaa。bbbbbbbbbbbbbb", "aaaa。aaaaaaaaa。"),
        ("a" * 30, "a" * 20),
        ("a\n\n" + "b" * 30, "a\n\n" + "b" * 17),
    ],
)
def test_where_a_text_is_cut(text: str, first: str) -> None:
    assert next(iter(split(text, 100, 20))).text == first


def test_a_short_text_is_one_passage() -> None:
    assert list(split("  One.\n\nTwo.  ", 100)) == [("One.\n\nTwo.", 2)]
    assert list(split(" \n ", 100)) == []
    assert [len(text) for text, _ in split("a" * 5000, 10**6)] == [
        PASSAGE_CHARS,
        PASSAGE_CHARS,
        1000,
    ]


def test_bytes_of_a_context() -> None:
    assert most_bytes(32_768) == 32_704
    assert most_bytes(32) == 16
