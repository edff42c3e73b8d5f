"""What every prompt begins with is computed once for a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import exactness
from jmm import Embedder
from jmm.kinds import Item
from support import golden
from support.sequences import PASSAGE_PREFIX, QUERY_PREFIX

Files = Callable[..., tuple[Path, Path]]
TEXTS = ["a chart", "a page", "  two spaces", "\ttab", "1", "数据", ": colon"]


@pytest.fixture
def embedder(tiny_name: str, tiny_files: Files) -> Embedder:
    return Embedder(*tiny_files(tiny_name), profile="jina-embeddings-v4", n_threads=1)


def n_rows(embedder: Embedder, texts: list[str], **options: object) -> int:
    before = embedder._engine.n_rows
    embedder.encode_query(texts, **options)
    return embedder._engine.n_rows - before


@pytest.mark.parametrize("prefix", [QUERY_PREFIX, PASSAGE_PREFIX])
def test_a_batch_has_the_vectors_of_the_reference(
    prefix: str, tiny_name: str, embedder: Embedder
) -> None:
    cases = [case for case in golden.load(tiny_name).values() if case.prefix == prefix]
    cases = [case for case in cases if case.text != prefix]
    encode = embedder.encode_query if prefix == QUERY_PREFIX else embedder.encode_document
    assert cases
    rows = encode([*((case.text or "").removeprefix(prefix) for case in cases), *TEXTS])
    for row, case in zip(rows, cases, strict=False):
        assert np.abs(row - case.pooled).max() <= exactness.COMPONENT


def test_the_prefix_is_computed_once(embedder: Embedder) -> None:
    alone = sum(n_rows(embedder, [text]) for text in TEXTS)
    sequences = [embedder._kinds.query("retrieval").place(text).sequence for text in TEXTS]
    n_prefix = sequences[0].n_prefix
    n_sharing = sum(sequence.n_prefix == n_prefix for sequence in sequences)
    assert n_prefix >= 1
    assert n_sharing >= 5
    assert n_rows(embedder, TEXTS) == alone - (n_sharing - 1) * n_prefix
    assert n_rows(embedder, TEXTS, batch_size=1) == alone


def test_the_prefix_is_the_start_of_each_text(embedder: Embedder) -> None:
    kind = embedder._kinds.query("retrieval")
    for text in TEXTS:
        sequence = kind.place(text).sequence
        if sequence.n_prefix:
            first = kind.place(TEXTS[0]).sequence.token_ids()[: sequence.n_prefix]
            assert sequence.token_ids()[: sequence.n_prefix] == first


def test_company_changes_no_bit(embedder: Embedder) -> None:
    together = embedder.encode_query(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert np.abs(embedder.encode_query(text) - row).max() <= exactness.MOVED


def test_small_batches(tiny_name: str, tiny_files: Files, embedder: Embedder) -> None:
    """The prefix may fill the first native batches alone."""
    wanted = embedder.encode_query(TEXTS)
    for n_batch in (1, 2, 3):
        with Embedder(
            *tiny_files(tiny_name), profile="jina-embeddings-v4", n_threads=1, n_batch=n_batch
        ) as small:
            assert np.abs(small.encode_query(TEXTS) - wanted).max() <= exactness.MOVED


def test_a_profile_without_a_prompt_shares_nothing(tiny_name: str, tiny_files: Files) -> None:
    with Embedder(*tiny_files(tiny_name), profile="qwen2.5-vl", n_threads=1) as plain:
        assert plain._kinds.query("retrieval").place("a chart").sequence.n_prefix == 0
        assert n_rows(plain, TEXTS) == sum(n_rows(plain, [text]) for text in TEXTS)


def test_shared_and_not(embedder: Embedder) -> None:
    """Equal bits either way."""
    kind = embedder._kinds.query("retrieval")
    items = [kind.place(text) for text in TEXTS]
    engine = embedder._engine

    def states(items: list[Item]) -> np.ndarray:
        pooled = np.empty((len(items), engine.n_embd), np.float32)
        hidden = np.empty(
            (sum(item.sequence.n_tokens for item in items), engine.n_embd), np.float32
        )
        sequences, spans = [item.sequence for item in items], [item.span for item in items]
        engine.forward(sequences, spans, pooled, hidden)
        return hidden

    apart = np.concatenate([states([item]) for item in items])
    before = engine.n_rows
    shared = states(items)
    assert engine.n_rows - before < len(apart)
    assert np.abs(shared - apart).max() <= exactness.MOVED
