"""The demo model's byte-level BPE: 768 tokens, merges learnt from seeded captions.

``merges.txt`` beside this file holds them; ``python tools/train_demo.py vocabulary`` writes it.

>>> encode("a red circle", tokenizer())
[...]
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import vocabulary
from support.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable

MERGES = Path(__file__).parent / "merges.txt"
N_TOKENS = 768
# The Qwen2 split, as in Qwen2.5-VL's tokenizer.json.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pre_tokenizer() -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def learn(texts: Iterable[str]) -> list[str]:
    """Learns the merges: ``"left right"`` strings in rank order."""
    import json

    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer()
    alphabet = sorted(vocabulary.bytes_to_unicode().values())
    size = N_TOKENS - len(vocabulary.ADDED_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(texts, trainer)
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


@lru_cache
def load() -> Vocabulary:
    """The tokens by id: 256 bytes, merges, Qwen2.5-VL's added tokens, padding to 768."""
    merges = MERGES.read_text("utf-8").splitlines()
    base = sorted(vocabulary.bytes_to_unicode().values())
    base += dict.fromkeys(merge.replace(" ", "") for merge in merges)
    added = len(vocabulary.ADDED_TOKENS)
    return vocabulary.assemble(base, lambda: merges, max(N_TOKENS, len(base) + added))


@lru_cache
def tokenizer() -> Any:
    """The tokenizer of plain text: no special token is ever recognised."""
    from tokenizers import Tokenizer, models, normalizers

    vocab = load()
    base = vocab.tokens[: vocab.id("<|endoftext|>")]
    merges = [(left, right) for left, right in (merge.split(" ") for merge in vocab.merges)]
    result = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(base)}, merges=merges))
    result.normalizer = normalizers.NFC()
    result.pre_tokenizer = _pre_tokenizer()
    return result


def encode(texts: list[str]) -> list[list[int]]:
    """Token ids of texts."""
    return [encoding.ids for encoding in tokenizer().encode_batch(texts)]
