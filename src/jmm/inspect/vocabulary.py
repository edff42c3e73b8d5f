"""How a model's vocabulary spells token ids, read from its GGUF file.

Layout: the GGUF specification, version 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_TOKENS = b"tokenizer.ggml.tokens"
_STRING, _ARRAY = 8, 9
# Bytes of a value, by GGUF type.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_SPACE = "\u2581"  # what SentencePiece vocabularies write for a space


def token_texts(path: str, ids: list[int]) -> list[str]:
    """Spells tokens.

    Args:
        path: GGUF file of a language model that has been loaded.
        ids: Token ids; below 0 gives an empty text.

    Returns:
        Per id its text. A token that holds a part of a character shows U+FFFD for it.

    Example:
        >>> from jmm import demo
        >>> token_texts(str(demo.paths()[0]), [-1])
        ['']
    """
    spellings = _spellings(path)
    return ["" if id_ < 0 else _spell(spellings[id_]) for id_ in ids]


def _spellings(path: str) -> list[str]:
    with Path(path).open("rb") as file:
        file.seek(8)
        _, n_keys = _unpack(file, "<QQ")
        for _ in range(n_keys):
            key = _string(file)
            (kind,) = _unpack(file, "<I")
            if key == _TOKENS:
                _, length = _unpack(file, "<IQ")
                return [_string(file).decode("utf-8", "replace") for _ in range(length)]
            _skip(file, kind)
    return []


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _string(file)
    elif kind == _ARRAY:
        inner, length = _unpack(file, "<IQ")
        if inner in _SIZES:
            file.seek(_SIZES[inner] * length, 1)
            return
        for _ in range(length):
            _skip(file, inner)
    else:
        file.seek(_SIZES[kind], 1)


def _string(file: BinaryIO) -> bytes:
    (length,) = _unpack(file, "<Q")
    return file.read(length)


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


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
