"""The vocabulary of a checkpoint, from tokenizer.json alone.

Source: tokenizer.json of the Qwen2 family, and llama.cpp's converter (token types, ``[PAD<id>]``
for ids that no token has).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gguf

from jmm.convert.foreign import foreign
from jmm.convert.json_file import Section, read, shown
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FILE = "tokenizer.json"
# Qwen2's split of a text into words, which llama.cpp has under the name "qwen2".
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, their `gguf.TokenType`, and what tokenizer_config.json adds."""

    path: Path
    tokens: list[str]
    types: list[int]
    special: Any

    def check_holds(self, wanted: Iterable[str], why: str) -> None:
        """Raises ModelLoadError unless all these tokens are there."""
        for token in wanted:
            if token not in self.tokens:
                raise ModelLoadError(f"{self.path}: there is no token {token}, which {why} needs")

    def add_to(self, writer: Any) -> None:
        """Writes all keys of the tokenizer."""
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        self.special.add_to_gguf(writer, quiet=True)


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Reads the tokenizer.

    Args:
        folder: The checkpoint.
        size: Rows of the embedding matrix.

    Raises:
        ModelLoadError: A file is missing or damaged, or it is not the tokenizer of the Qwen2
            family.
    """
    path = folder / FILE
    root = Section(path, read(path))
    model = root.section("model")
    if model.values.get("type") != "BPE":
        raise model.fail("type", "'BPE' is supported")
    if _QWEN2_SPLIT not in _patterns(root.values.get("pre_tokenizer")):
        raise root.fail("pre_tokenizer", "the one of Qwen2 is supported")
    tokens: list[str | None] = [None] * size
    types = [int(gguf.TokenType.UNUSED)] * size
    for token, index in model.section("vocab").values.items():
        _place(path, tokens, index, token)
        types[index] = int(gguf.TokenType.NORMAL)
    for added in root.entries("added_tokens"):
        try:
            token, index, special = added["content"], added["id"], added["special"]
        except (KeyError, TypeError):
            raise ModelLoadError(f"{path}: added_tokens has the entry {shown(added)}") from None
        _place(path, tokens, index, token)
        is_control = special or (token.startswith("<|") and token.endswith("|>"))
        kind = gguf.TokenType.CONTROL if is_control else gguf.TokenType.USER_DEFINED
        types[index] = int(kind)
    filled = [f"[PAD{i}]" if token is None else token for i, token in enumerate(tokens)]
    return Vocabulary(path, filled, types, _special(folder, size))


def _place(path: Path, tokens: list[str | None], index: Any, token: Any) -> None:
    if not _is_text(token):
        raise ModelLoadError(f"{path}: token {index!r} is {shown(token)}; a text is needed")
    if type(index) is not int or not 0 <= index < len(tokens):
        raise ModelLoadError(
            f"{path}: token {token!r} has id {shown(index)}; config.json's vocab_size is "
            f"{len(tokens)}"
        )
    if tokens[index] not in (None, token):
        raise ModelLoadError(f"{path}: tokens {tokens[index]!r} and {token!r} share id {index}")
    tokens[index] = token


def _is_text(value: object) -> bool:
    """Lone surrogates, which JSON can spell, are no text."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _patterns(pre_tokenizer: Any) -> Iterator[str]:
    left = [pre_tokenizer]
    while left:
        part = left.pop()
        if not isinstance(part, dict):
            continue
        pattern, inner = part.get("pattern"), part.get("pretokenizers")
        if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
            yield pattern["Regex"]
        if isinstance(inner, list):
            left += inner


def _special(folder: Path, size: int) -> Any:
    for name in ("tokenizer_config.json", "chat_template.json"):
        if os.path.exists(folder / name):
            read(folder / name)
    with foreign(f"{folder}: the tokenizer cannot be read"):
        special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=size)
    if not special.merges:
        raise ModelLoadError(f"{folder / FILE}: model.merges is empty")
    for merge in special.merges:
        if not _is_text(merge):
            raise ModelLoadError(f"{folder / FILE}: model.merges has the entry {shown(merge)}")
    for end in ("bos", "eos"):  # Qwen2 adds neither; gguf before 0.20 leaves it open
        special.add_special_token.setdefault(end, False)
    return special
