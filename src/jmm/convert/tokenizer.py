"""The vocabulary of a checkpoint, from tokenizer.json alone.

Sources: tokenizer.json of the Qwen2 family; transformers' ``TokenizersBackend`` (what it takes from
tokenizer_config.json); llama.cpp's converter (token types, ``[PAD<id>]`` for ids without a token).
Every stage that would cut a text otherwise than Qwen2's is refused.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gguf

from jmm.convert.foreign import foreign
from jmm.convert.json_file import Section, read, shown
from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FILE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
# Qwen2's split of a text into words, which llama.cpp has under the name "qwen2".
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


# The letters that stand for bytes: those of Latin-1 that are seen, and others from 256 on.
_SEEN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_BYTES = [*map(chr, sorted(_SEEN)), *map(chr, range(256, 512 - len(_SEEN)))]
# Of a model of kind BPE: what its words would be made of otherwise.
_PLAIN_MODEL: dict[str, object] = {
    "dropout": 0.0,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}
# Those that cut a text as tokenizer.json says, or as Qwen2 does.
_CLASSES = ("Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
_SPACE_TAKERS = ("single_word", "lstrip", "rstrip")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, their `gguf.TokenType`, and what tokenizer_config.json adds.

    ``ends`` are the tokens that the reference adds around every text.
    """

    path: Path
    tokens: list[str]
    types: list[int]
    special: Any
    ends: tuple[str, ...] = ()

    def check_holds(self, wanted: Iterable[str], why: str) -> None:
        """Raises ModelLoadError unless all these tokens are there."""
        for token in wanted:
            if token not in self.tokens:
                raise ModelLoadError(f"{self.path}: there is no token {token}, which {why} needs")

    def check_ids(self, ids: Mapping[str, int], source: Path) -> None:
        """Raises ModelLoadError unless these tokens have these ids."""
        for token, index in ids.items():
            found = self.tokens.index(token) if token in self.tokens else "none"
            if found != index:
                raise ModelLoadError(
                    f"{source}: the id of {token} is {index}, and in {self.path} it is {found}"
                )

    def check_ends(self, is_added: bool, why: str) -> None:
        """Raises ModelLoadError if the reference adds tokens to a text and the profile does not."""
        if self.ends and not is_added:
            raise ModelLoadError(
                f"{self.path}: post_processor adds {', '.join(self.ends)} to every text; {why} "
                "adds none"
            )

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
    for key, plain in _PLAIN_MODEL.items():
        model.only(key, plain)
    if root.values.get("normalizer") != {"type": "NFC"}:
        raise root.fail("normalizer", "NFC is supported")
    if not _is_qwen2_split(root.values.get("pre_tokenizer")):
        raise root.fail("pre_tokenizer", "the one of Qwen2 is supported")
    ends = _ends(root)
    tokens: list[str | None] = [None] * size
    types = [int(gguf.TokenType.UNUSED)] * size
    for token, index in model.section("vocab").values.items():
        _place(path, tokens, index, token)
        types[index] = int(gguf.TokenType.NORMAL)
    for added in root.items("added_tokens"):
        try:
            token, index, special = added["content"], added["id"], added["special"]
        except (KeyError, TypeError):
            special = None
        if type(special) is not bool:
            raise ModelLoadError(
                f"{path}: added_tokens has the entry {shown(added)}; an object with content, id "
                "and special, true or false, is needed"
            )
        _place(path, tokens, index, token)
        _check_plain(path, added)
        is_control = special or (token.startswith("<|") and token.endswith("|>"))
        kind = gguf.TokenType.CONTROL if is_control else gguf.TokenType.USER_DEFINED
        types[index] = int(kind)
    filled = [f"[PAD{i}]" if token is None else token for i, token in enumerate(tokens)]
    _check_merges(model, tokens)
    _check_settings(folder / _CONFIG, filled)
    special = _special(folder, size)
    _check_ends(path, ends, filled, special)
    return Vocabulary(path, filled, types, special, tuple(filter(None, ends)))


def _place(path: Path, tokens: list[str | None], index: Any, token: Any) -> None:
    if not token or not _is_text(token):
        raise ModelLoadError(f"{path}: token {index!r} is {shown(token)}; a text is needed")
    if type(index) is not int or not 0 <= index < len(tokens):
        raise ModelLoadError(
            f"{path}: token {token!r} has id {shown(index)}; config.json's vocab_size is "
            f"{len(tokens)}"
        )
    if tokens[index] not in (None, token):
        raise ModelLoadError(f"{path}: tokens {tokens[index]!r} and {token!r} share id {index}")
    tokens[index] = token


def _check_plain(path: Path, added: Mapping[str, Any]) -> None:
    """Raises ModelLoadError unless a token is found by its letters alone, in text that is NFC."""
    if any(added.get(key) for key in _SPACE_TAKERS):
        raise ModelLoadError(
            f"{path}: token {added['content']!r} takes the space around it or stands alone only: "
            f"{shown(added)}; this is not supported"
        )
    if not unicodedata.is_normalized("NFC", added["content"]):
        raise ModelLoadError(
            f"{path}: token {added['content']!a} is not in the form NFC, and texts are"
        )


def _check_merges(model: Section, tokens: Sequence[str | None]) -> None:
    """Raises ModelLoadError unless every part that merges join or give is a token."""
    known = set(tokens)
    for merge in model.items("merges"):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(map(_is_text, parts)):
            raise ModelLoadError(f"{model.path}: model.merges has the entry {shown(merge)}")
        for part in (*parts, "".join(parts)):
            if part not in known:
                raise ModelLoadError(
                    f"{model.path}: model.merges has the entry {shown(merge)}, and there is no "
                    f"token {part!r}"
                )
    missing = [char for char in _BYTES if char not in known]
    if missing and model.values.get("unk_token") is not None:
        raise model.fail("unk_token", f"null is supported where a byte, {missing[0]!r}, is missing")


def _check_settings(path: Path, tokens: Sequence[str]) -> None:
    """Raises ModelLoadError if tokenizer_config.json has a text cut otherwise."""
    if not path.exists():
        return
    values = Section(path, read(path))
    found = values.values.get("tokenizer_class")
    if found is not None:
        values.one_of("tokenizer_class", _CLASSES, found)
    for key in ("add_prefix_space", "split_special_tokens"):
        values.only(key, False)
    for key in ("add_bos_token", "add_eos_token"):
        if not isinstance(values.values.get(key), bool | None):
            raise values.fail(key, "true or false is needed")
    if values.values.get("added_tokens_decoder") is None:
        return
    decoder = values.section("added_tokens_decoder")
    for index, added in decoder.values.items():
        if not isinstance(added, dict) or not _is_text(added.get("content")):
            raise decoder.fail(index, "an object with a text as content is needed")
        if not index.isdecimal() or added["content"] not in tokens[int(index) :][:1]:
            raise decoder.fail(index, f"{FILE} has no such token of that id")
        _check_plain(path, added)


def _is_text(value: object) -> bool:
    """Lone surrogates, which JSON can spell, are no text."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_qwen2_split(stage: Any) -> bool:
    """Whether a text is split by Qwen2's pattern, and nothing else, and then taken as bytes."""
    stages = stage.get("pretokenizers") if _type(stage) == "Sequence" else None
    if not isinstance(stages, list) or [_type(one) for one in stages] != ["Split", "ByteLevel"]:
        return False
    split, level = stages
    return (
        split.get("pattern") == {"Regex": _QWEN2_SPLIT}
        and split.get("behavior") == "Isolated"
        and not split.get("invert", False)
        and not level.get("add_prefix_space", True)
        and not level.get("use_regex", True)
    )


def _type(stage: Any) -> Any:
    return stage.get("type") if isinstance(stage, dict) else None


def _ends(root: Section) -> tuple[str | None, str | None]:
    """The token that the post-processor puts before a text, and the one after it."""
    stage = root.values.get("post_processor")
    stages = [stage] if stage is not None else []
    if isinstance(stage, dict) and isinstance(stage.get("processors"), list):
        stages = stage["processors"]
    templates = [one.get("single") for one in stages if _type(one) == "TemplateProcessing"]
    if any(_type(one) not in ("ByteLevel", "TemplateProcessing") for one in stages):
        raise root.fail("post_processor", "ByteLevel and TemplateProcessing are supported")
    if not templates:
        return None, None
    try:
        (pieces,) = templates
        named = [(kind, entry["id"]) for piece in pieces for kind, entry in piece.items()]
        middle = [kind for kind, _ in named].index("Sequence")
        before, after = named[:middle], named[middle + 1 :]
        if max(len(before), len(after)) > 1 or any(kind == "Sequence" for kind, _ in after):
            raise ValueError("more than a token at an end")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise root.fail(
            "post_processor", "one template with at most a token at each end is supported"
        ) from None
    return (before[0][1] if before else None), (after[0][1] if after else None)


def _check_ends(
    path: Path, ends: tuple[str | None, str | None], tokens: list[str], special: Any
) -> None:
    """Raises ModelLoadError unless the file will say what the template does."""
    for kind, token in zip(("bos", "eos"), ends, strict=True):
        index = special.special_token_ids.get(kind)
        if special.add_special_token[kind] and index is None:
            raise ModelLoadError(
                f"{path.parent / _CONFIG}: add_{kind}_token is true; there is no {kind}_token"
            )
        named = tokens[index] if special.add_special_token[kind] else None
        if named != token:
            raise ModelLoadError(
                f"{path}: post_processor puts {token or 'no token'} at the "
                f"{'begin' if kind == 'bos' else 'end'} of a text, and {kind}_token is "
                f"{named or 'not to be added'}"
            )


def _special(folder: Path, size: int) -> Any:
    if (folder / "chat_template.json").exists():
        read(folder / "chat_template.json")
    with foreign(f"{folder}: the tokenizer cannot be read"):
        special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=size)
    if not special.merges:
        raise ModelLoadError(f"{folder / FILE}: model.merges is empty")
    for end in ("bos", "eos"):  # Qwen2 adds neither; gguf before 0.20 leaves it open
        special.add_special_token.setdefault(end, False)
    return special
