"""How a model's vocabulary spells token ids, read from its GGUF file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jmm.errors import ModelLoadError
from jmm.files import read_header
from jmm.quantizer import layout

_TOKENS = "tokenizer.ggml.tokens"
_SPACE = "\u2581"  # what SentencePiece vocabularies write for a space
_KEPT = 2


def token_texts(path: str, ids: list[int]) -> list[str]:
    """Spells tokens. The vocabularies of the last two files are kept.

    Args:
        path: GGUF file of a language model that has been loaded.
        ids: Token ids; below 0 gives an empty text.

    Returns:
        Per id its text. A token that holds a part of a character shows U+FFFD for it.

    Raises:
        ModelLoadError: The file is gone, or no longer the one that was loaded.

    Example:
        >>> from jmm import demo
        >>> token_texts(str(demo.paths()[0]), [-1])
        ['']
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise ModelLoadError(f"{path}: the file is gone ({error.strerror})") from None
    spellings = _spellings(path, status.st_size, status.st_mtime_ns)
    if max(ids, default=-1) >= len(spellings):
        raise ModelLoadError(f"{path}: the file has changed since it was loaded")
    return ["" if id_ < 0 else _spell(spellings[id_]) for id_ in ids]


@lru_cache(maxsize=_KEPT)
def _spellings(path: str, *_: int) -> list[str]:
    strings = layout.read_strings(read_header(path), _TOKENS)
    return [string.decode("utf-8", "replace") for string in strings]


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_letters()


def _spell(token: str) -> str:
    if all(letter in _BYTES for letter in token):
        return bytes(_BYTES[letter] for letter in token).decode("utf-8", "replace")
    return token.replace(_SPACE, " ")
