"""What every prompt begins with is computed once for a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import exactness
from jmm import Embedder
from jmm.profiles import TEXT
from support import golden
from support.sequences import PASSAGE_PREFIX, QUERY_PREFIX

Files = Callable[..., tuple[Path, Path]]
QUERY = ("Query: ", TEXT)
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


def test_company_moves_no_component_further(embedder: Embedder) -> None:
    together = embedder.encode_query(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert np.abs(embedder.encode_query(text) - row).max() <= exactness.COMPONENT


def test_small_batches(tiny_name: str, tiny_files: Files, embedder: Embedder) -> None:
    """The prefix may fill the first native batches alone."""
    wanted = embedder.encode_query(TEXTS)
    for n_batch in (1, 2, 3):
        with Embedder(
            *tiny_files(tiny_name), profile="jina-embeddings-v4", n_threads=1, n_batch=n_batch
        ) as small:
            np.testing.assert_allclose(small.encode_query(TEXTS), wanted, atol=exactness.COMPONENT)


def test_a_profile_without_a_prompt_shares_nothing(tiny_name: str, tiny_files: Files) -> None:
    with Embedder(*tiny_files(tiny_name), profile="qwen2.5-vl", n_threads=1) as plain:
        assert plain._kinds.query("retrieval").place("a chart").sequence.n_prefix == 0
        assert n_rows(plain, TEXTS) == sum(n_rows(plain, [text]) for text in TEXTS)


def test_shared_and_not(embedder: Embedder) -> None:
    """Bits are not equal: attention groups its sums by cells, and shared cells lie elsewhere."""
    kind = embedder._kinds.query("retrieval")
    items = [kind.place(text) for text in TEXTS]
    shared = np.empty((len(TEXTS), embedder.dim), np.float32)
    apart = np.empty_like(shared)
    spans = [item.span for item in items]
    engine = embedder._engine
    before = engine.n_rows
    engine.forward([item.sequence for item in items], spans, shared)
    n_shared = engine.n_rows - before
    bare = [engine.tokenize(embedder.profile.text_parts(QUERY, text)) for text in TEXTS]
    engine.forward(bare, spans, apart)
    assert engine.n_rows - before - n_shared > n_shared
    length = np.linalg.norm(apart, axis=1, keepdims=True)
    assert np.abs((shared - apart) / length).max() <= exactness.COMPONENT
