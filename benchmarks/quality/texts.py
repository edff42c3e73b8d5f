"""Queries out of the pages' own text: no people, and each true for one page alone.

A candidate is a numbered heading or a sentence. It is kept if, with case and punctuation aside, it
occurs on its page alone and no other page shares more than a quarter of its runs of four words:
a table of contents repeats headings, and vignettes repeat each other's paragraphs.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# TeX's T1 encoding, which pdfium passes on where a font tells nothing better.
_T1 = {0x15: "-", 0x16: "-", 0x1B: "ff", 0x1C: "fi", 0x1D: "fl", 0x1E: "ffi", 0x1F: "ffl"}
_BROKEN_WORD = re.compile(r"(?:[\x02\ufffe\u00ad]\s*|(?<=[a-z])-\s*\n\s*(?=[a-z]))")
_HEADING = re.compile(r"^(?:[A-Z]|\d{1,2})(?:\.\d{1,2}){0,3}\.?\s+([A-Z][^\n.]{8,70})$", re.M)
_SENTENCE_END = re.compile(r"(?<=[\w)][.?!])\s+(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_PLAIN_WORD = re.compile(r"^[A-Za-z]+(?:['’-][A-Za-z]+)*[,;:.?!)]?$")

RUN = 4
MAX_SHARED = 0.25
HEADING_WORDS = range(3, 13)
SENTENCE_WORDS = range(8, 31)
# Of a sentence's words, so many at least are plain English ones: no code, no formulas.
PLAIN_SHARE = 0.9


@dataclass(frozen=True)
class Query:
    """A query and the page that it is about."""

    text: str
    page: str
    kind: str


def clean(text: str) -> str:
    """What pdfium reads, with ligatures spelt out and broken words joined; lines are kept."""
    text = _BROKEN_WORD.sub("", text.replace("\r\n", "\n"))
    return unicodedata.normalize("NFKC", text.translate(_T1)).strip()


def words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def candidates(text: str) -> Iterator[tuple[str, str]]:
    """(kind, query) of one cleaned page."""
    for heading in _HEADING.findall(text):
        if len(heading.split()) in HEADING_WORDS and _is_plain(heading):
            yield "heading", heading.strip()
    prose = " ".join(line.strip() for line in text.splitlines())
    # The ends are what other pages cut off.
    for sentence in _SENTENCE_END.split(prose)[1:-1]:
        if len(sentence.split()) in SENTENCE_WORDS and _is_plain(sentence):
            yield "sentence", sentence.strip()


def _is_plain(text: str) -> bool:
    parts = text.split()
    return sum(bool(_PLAIN_WORD.match(part)) for part in parts) >= PLAIN_SHARE * len(parts)


class Uniqueness:
    """Tells whether a text is found on one page alone.

    Args:
        pages: Cleaned texts by page.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._texts = {page: f" {' '.join(words(text))} " for page, text in pages.items()}
        self._owners: dict[tuple[str, ...], set[str]] = {}
        for page, text in pages.items():
            for run in _runs(words(text)):
                self._owners.setdefault(run, set()).add(page)

    def __call__(self, text: str, page: str) -> bool:
        own = words(text)
        phrase = f" {' '.join(own)} "
        if [name for name, whole in self._texts.items() if phrase in whole] != [page]:
            return False
        runs = set(_runs(own))
        shared = Counter(
            other for run in runs for other in self._owners.get(run, ()) if other != page
        )
        return all(count <= MAX_SHARED * len(runs) for count in shared.values())


def _runs(own: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(own[i : i + RUN]) for i in range(len(own) - RUN + 1))


def choose(pages: Mapping[str, str], *, sentences: int = 1, seed: int = 0) -> list[Query]:
    """All headings and some sentences of each page that are true for it alone.

    Args:
        pages: Cleaned texts by page.
        sentences: Most sentences of a page.
        seed: Settles which.

    Returns:
        Queries in the order of the pages, no text twice.
    """
    is_unique = Uniqueness(pages)
    chosen: dict[str, Query] = {}
    for page, text in pages.items():
        # A page draws alike whatever the others are.
        rng = random.Random(f"{seed} {page}")
        found = [Query(query, page, kind) for kind, query in candidates(text)]
        found = [query for query in found if is_unique(query.text, page)]
        prose = [query for query in found if query.kind == "sentence"]
        keep = [query for query in found if query.kind == "heading"]
        keep += rng.sample(prose, min(sentences, len(prose)))
        for query in keep:
            chosen.setdefault(" ".join(words(query.text)), query)
    return list(chosen.values())
