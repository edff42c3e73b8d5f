"""MaxSim and token pooling against colpali-engine, live."""

from __future__ import annotations

import numpy as np
import pytest

from jmm import MultiVector, maxsim, pool_tokens

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
oracles = pytest.importorskip(
    "support.oracles", reason="see support/oracles.py", exc_type=ImportError
)

DIM = 128


def unit(seed: int, lengths: list[int], dim: int = DIM) -> MultiVector:
    values = np.random.default_rng(seed).standard_normal((sum(lengths), dim)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return MultiVector(values, np.cumsum([0, *lengths]))


def tensors(items: MultiVector) -> list[object]:
    return [torch.from_numpy(rows) for rows in items]


@pytest.mark.parametrize("n_tokens", [30, 780, 2500])
def test_scores(n_tokens: int) -> None:
    queries = unit(0, [1, 7, 20, 600, 20, 13])
    documents = unit(n_tokens, [n_tokens] * 20)
    right = oracles.score_multi_vector(tensors(queries), tensors(documents), device="cpu").numpy()
    np.testing.assert_allclose(maxsim(queries, documents), right, rtol=1e-5)


def test_scores_of_documents_of_many_lengths() -> None:
    """One pair at a time there, since padding makes 0 of a token's negative greatest product."""
    queries, documents = unit(1, [5, 20, 33]), unit(2, [1, 2, 5, 31, 300, 64, 65, 1])
    right = [
        [oracles.score_multi_vector([q], [d], device="cpu").item() for d in tensors(documents)]
        for q in tensors(queries)
    ]
    np.testing.assert_allclose(maxsim(queries, documents), right, rtol=1e-5, atol=1e-6)
    padded = oracles.score_multi_vector(tensors(queries), tensors(documents), device="cpu")
    assert np.abs(padded.numpy() - right).max() > 0.1


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 1000])
def test_pooled_tokens(factor: int) -> None:
    pages = unit(3, [2, 3, 7, 40, 256, 780])
    right = oracles.HierarchicalTokenPooler().pool_embeddings(tensors(pages), pool_factor=factor)
    for got, rows in zip(pool_tokens(pages, factor), right, strict=True):
        np.testing.assert_allclose(got, rows.numpy(), atol=1e-6)


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_pooled_tokens_that_resemble_one_another(factor: int) -> None:
    """Neighbours on a page: smooth paths on the sphere with little noise."""
    rng = np.random.default_rng(factor)
    steps = rng.standard_normal((4, 300, DIM)).cumsum(axis=1) + 0.1 * rng.standard_normal(DIM)
    items = (steps / np.linalg.norm(steps, axis=2, keepdims=True)).astype(np.float32)
    right = oracles.HierarchicalTokenPooler().pool_embeddings(
        list(torch.from_numpy(items)), pool_factor=factor
    )
    for got, rows in zip(pool_tokens(MultiVector.from_list(items), factor), right, strict=True):
        np.testing.assert_allclose(got, rows.numpy(), atol=1e-6)
