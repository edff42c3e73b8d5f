"""Long texts, cut into passages that a model can take."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSAGE_CHARS = 2000

# Tokens left for the prompt around a passage.
_PROMPT_TOKENS = 64
_LEAST_BYTES = 16
# Where to cut, the best first: between paragraphs, lines, sentences, words.
_BREAKS = tuple(map(re.compile, (r"\n[ \t]*\n\s*", r"\n\s*", r"[.!?]\s+|[。！？]\s*", r"\s+")))


class Passage(NamedTuple):
    """A piece of a text and where it starts, in characters."""

    text: str
    start: int


def most_bytes(n_ctx: int) -> int:
    """Bytes of UTF-8 that fit ``n_ctx`` tokens whatever they are: a token has at least one."""
    return max(n_ctx - _PROMPT_TOKENS, _LEAST_BYTES)


def split(text: str, max_bytes: int, max_chars: int = PASSAGE_CHARS) -> Iterator[Passage]:
    """Cuts a text into passages, which do not overlap.

    A passage is as long as the limits allow, and is cut at the last end of a paragraph in its
    second half; failing that of a line, a sentence, a word; failing that at the limit.

    Args:
        text: Any text.
        max_bytes: Most bytes of a passage, as UTF-8 of its NFC form.
        max_chars: Most characters.

    Yields:
        The passages in order, without the white space around them; none that are empty.

    Example:
        >>> [passage.text for passage in split("One two. Three four five.", 64, 12)]
        ['One two.', 'Three four', 'five.']
    """
    start = 0
    while start < len(text):
        stop = _limit(text, start, min(start + max_chars, len(text)), max_bytes)
        if stop < len(text):
            stop = _break(text, start, stop)
        passage = text[start:stop]
        if passage.strip():
            yield Passage(passage.strip(), start + len(passage) - len(passage.lstrip()))
        start = stop


def _limit(text: str, start: int, stop: int, max_bytes: int) -> int:
    while stop - start > 1:
        n_bytes = len(unicodedata.normalize("NFC", text[start:stop]).encode(errors="replace"))
        if n_bytes <= max_bytes:
            break
        stop = start + max(1, min(stop - start - 1, (stop - start) * max_bytes // n_bytes))
    return stop


def _break(text: str, start: int, stop: int) -> int:
    middle = start + (stop - start) // 2
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, middle, stop)]
        if ends and ends[-1] > start:
            return ends[-1]
    return stop
