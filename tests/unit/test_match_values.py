"""How MaxSim is shared out among a page's tokens, by hand-made vectors."""

from __future__ import annotations

import hypothesis
import numpy as np
from hypothesis import strategies as st

from jmm import maxsim
from jmm.inspect import contributions

# Of five page tokens: a corner, two axes, a weak match, a copy of the first axis.
PAGE = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]], np.float32)
QUERY = np.array([[0.75, 0, 0], [0, 0.5, 0], [0.25, 0, 0], [0, 0, -2]], np.float32)


def test_shares_go_to_the_best_matches() -> None:
    shares, best, similarities = contributions(QUERY, PAGE)
    # The last query token is repelled by token 0 and indifferent to the rest: the first of these.
    assert best.tolist() == [1, 2, 1, 1]
    assert shares.tolist() == [0, 1, 0.5, 0, 0]
    assert similarities.tolist() == (QUERY.astype(float) @ PAGE.astype(float).T).tolist()


def test_a_negative_best_match_is_kept() -> None:
    shares, best, _ = contributions(np.array([[-1.0, 0]], np.float32), np.eye(2, dtype=np.float32))
    assert (shares.tolist(), best.tolist()) == ([0, 0], [1])
    shares, _, _ = contributions(np.array([[-1.0, -2]], np.float32), np.eye(2, dtype=np.float32))
    assert shares.tolist() == [-1, 0]


@hypothesis.given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 99))
def test_shares_sum_to_maxsim(n_query: int, n_page: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query = rng.standard_normal((n_query, 16)).astype(np.float32)
    page = rng.standard_normal((n_page, 16)).astype(np.float32)
    shares, _, _ = contributions(query, page)
    assert len(shares) == n_page
    np.testing.assert_allclose(shares.sum(), maxsim(query, page)[0, 0], rtol=1e-5, atol=1e-4)
