"""Small vocabularies of the kinds that text models use, and their tokenizers in `tokenizers`.

Example:
    >>> wordpiece().keys["tokenizer.ggml.model"]
    'bert'
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf

from support import vocabulary

_CONTROL, _NORMAL = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
_UNKNOWN, _BYTE = int(gguf.TokenType.UNKNOWN), int(gguf.TokenType.BYTE)
_SPACE = "\u2581"
_N_MERGES = 300
_WORDS = (
    "the quick brown fox jump over lazy dog and it is fine cafe a picture of red square in "
    "middle page chart query def return"
)
_PICTURES = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
_SUFFIXES = "s ed ing er ly es tion in on an th"


@dataclass(frozen=True)
class Words:
    """A vocabulary.

    Attributes:
        size: Number of tokens.
        keys: GGUF keys of the tokenizer, named as llama.cpp's converter names them.
        make_tokenizer: Gives a `tokenizers.Tokenizer` that adds the tokens at the ends; whether it
            knows special tokens within a text is its argument.
        named: Ids of tokens to which the tokenizer gives others.
    """

    size: int
    keys: dict[str, Any]
    make_tokenizer: Callable[[bool], Any]
    named: Mapping[str, int] = field(default_factory=dict)

    @property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {token: i for i, token in enumerate(self.keys["tokenizer.ggml.tokens"])}

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text by `tokenizers`; special tokens in it count only with ``special``."""
        tokens = self.make_tokenizer(special).encode(text)
        return [
            self.named.get(token, i) for token, i in zip(tokens.tokens, tokens.ids, strict=True)
        ]


def _ggml(**keys: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}


@lru_cache
def byte_level() -> Words:
    """`vocabulary.small`, without tokens at the ends."""
    vocab = vocabulary.small()
    keys = _ggml(
        model="gpt2",
        pre="qwen2",
        tokens=list(vocab.tokens),
        token_type=list(vocab.types),
        merges=list(vocab.merges),
        eos_token_id=vocab.id("<|im_end|>"),
        bos_token_id=vocab.id("<|endoftext|>"),
        padding_token_id=vocab.id("<|endoftext|>"),
        add_bos_token=False,
    )

    def make(special: bool) -> Any:
        from support import reference, tiny

        return reference.tokenizer(tiny.MODELS["qwen25_small"], special)

    return Words(len(vocab), keys, make, vocab.ids)


def _with_specials(*tokens: str) -> Words:
    """`byte_level` with further special tokens."""
    base = byte_level()
    listed = [*base.keys["tokenizer.ggml.tokens"], *tokens]
    types = [*base.keys["tokenizer.ggml.token_type"], *[_CONTROL] * len(tokens)]
    keys = base.keys | _ggml(tokens=listed, token_type=types)

    def make(special: bool) -> Any:
        import tokenizers

        result = tokenizers.Tokenizer.from_str(base.make_tokenizer(special).to_str())
        if special:
            result.add_special_tokens(list(tokens))
        return result

    return Words(len(listed), keys, make, {token: i for i, token in enumerate(listed)})


@lru_cache
def smolvlm() -> Words:
    """With the tokens that SmolVLM puts around tiles."""
    cells = [f"<row_{y}_col_{x}>" for y in range(1, 4) for x in range(1, 4)]
    return _with_specials("<image>", "<fake_token_around_image>", "<global-img>", *cells)


@lru_cache
def internvl() -> Words:
    """With the tokens that InternVL puts around tiles."""
    return _with_specials("<img>", "</img>", "<IMG_CONTEXT>")


@lru_cache
def wordpiece() -> Words:
    """BERT's: lower case, ``[CLS]`` and ``[SEP]`` around a text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits
    plain = [*letters, *string.punctuation, *"你好世界приветм", *_WORDS.split()]
    inner = [*letters, *"приветм", *_SUFFIXES.split()]
    tokens = [*special, *dict.fromkeys(plain), *(f"##{part}" for part in dict.fromkeys(inner))]
    written = [
        token if token in special else token[2:] if token.startswith("##") else _SPACE + token
        for token in tokens
    ]
    keys = _ggml(
        model="bert",
        tokens=written,
        token_type=[_CONTROL if token in special else _NORMAL for token in tokens],
        token_type_count=2,
        unknown_token_id=1,
        cls_token_id=2,
        bos_token_id=2,
        seperator_token_id=3,
        padding_token_id=0,
        mask_token_id=4,
    )

    def make(_special: bool) -> Any:
        import tokenizers

        ids = {token: i for i, token in enumerate(tokens)}
        result = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
        result.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
        result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        result.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return result

    return Words(len(tokens), keys, make)


@lru_cache
def sentencepiece() -> Words:
    """EmbeddingGemma's kind: ``<bos>`` and ``<eos>`` around a text, bytes for what is unknown."""
    return _sentencepiece("<bos> $A <eos>", add_eos=True)


@lru_cache
def sentencepiece_begun() -> Words:
    """The same with ``<bos>`` alone, as Gemma 3 and LLaVA have it."""
    return _sentencepiece("<bos> $A", add_eos=False)


@lru_cache
def gemma4() -> Words:
    """EmbeddingGemma 2's kind: as `sentencepiece`, with merges instead of scores."""
    pictures = ["<|image>", "<|image|>", "<image|>"]
    return _sentencepiece("<bos> $A <eos>", add_eos=True, pictures=pictures, merged=True)


def _sentencepiece(
    template: str, *, add_eos: bool, pictures: Sequence[str] = _PICTURES, merged: bool = False
) -> Words:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", *pictures]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    lines = (Path(__file__).parent / "qwen_merges.txt").read_text("utf-8").splitlines()
    joined = [line.replace(" ", "").replace("Ġ", _SPACE) for line in lines[: 2 * _N_MERGES]]
    words = [text for text in joined if text.replace(_SPACE, "").isalnum()][:_N_MERGES]
    alphabet = sorted(set("".join(words)) | set(string.ascii_letters + string.digits))
    pieces = [text for text in dict.fromkeys(words) if len(text) > 1]
    if merged:  # of that kind, lines alone are tokens of their own
        alphabet, pieces = [*alphabet, "\n"], [*pieces, "\n\n"]
    tokens = [*special, *in_bytes, *pieces, *alphabet]
    n_first = len(special) + len(in_bytes)
    types = [_CONTROL] * len(special) + [_BYTE] * len(in_bytes)
    types[special.index("<unk>")] = _UNKNOWN
    keys = _ggml(
        model="llama",
        pre="default",
        tokens=tokens,
        scores=[0.0] * n_first + [-float(i) for i in range(len(tokens) - n_first)],
        token_type=types + [_NORMAL] * (len(tokens) - n_first),
        bos_token_id=2,
        eos_token_id=1,
        unknown_token_id=3,
        padding_token_id=0,
        add_space_prefix=False,
        add_bos_token=True,
        add_eos_token=add_eos,
    )
    ids = {token: i for i, token in enumerate(tokens)}
    pairs = [
        (ids[text], text[:at], text[at:])
        for text in pieces
        for at in range(1, len(text))
        if text[:at] in ids and text[at:] in ids
    ]
    merges = [(left, right) for _, left, right in sorted(pairs)]
    if merged:
        keys |= _ggml(model="gemma4", merges=[f"{left} {right}" for left, right in merges])

    def make(special_too: bool) -> Any:
        import tokenizers

        result = tokenizers.Tokenizer(
            tokenizers.models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        )
        result.normalizer = tokenizers.normalizers.Replace(" ", _SPACE)
        result.post_processor = tokenizers.processors.TemplateProcessing(
            single=template, special_tokens=[("<bos>", 2), ("<eos>", 1)]
        )
        if special_too:
            result.add_special_tokens(special)
        return result

    return Words(len(tokens), keys, make)
