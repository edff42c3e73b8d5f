"""Where results gather."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jmm.results import PooledRows, TokenRows

DIM = 3


def test_pooled() -> None:
    rows = PooledRows(3, DIM)
    rows.reserve([0, 2], [5, 6])
    assert rows.tokens([0]) is None
    rows.keep(2, np.array([1, 2, 3], np.float32))
    assert np.isnan(rows.values[:2]).all()
    assert rows.values.tolist()[2] == [1, 2, 3]
    assert rows.values.dtype == np.float32
    assert PooledRows(0, DIM).values.shape == (0, DIM)


def test_no_tokens() -> None:
    for n in (0, 4):
        result = TokenRows(n, DIM).result()
        assert result.values.shape == (0, DIM)
        assert result.offsets.tolist() == [0] * (n + 1)


@given(
    lengths=st.lists(st.integers(1, 5), max_size=12),
    data=st.data(),
)
def test_tokens_in_any_order(lengths: list[int], data: st.DataObject) -> None:
    """Windows of items in order; inside one, batches in any order; some items fail."""
    n = len(lengths)
    right = [np.full((length, DIM), i, np.float32) for i, length in enumerate(lengths)]
    outcome = st.sampled_from(["kept", "failed early", "failed late"])
    outcomes = data.draw(st.lists(outcome, min_size=n, max_size=n))
    rows = TokenRows(n, DIM)
    size = data.draw(st.integers(1, 5))
    for start in range(0, n, size):
        window = [i for i in range(start, min(start + size, n)) if outcomes[i] != "failed early"]
        rows.reserve(window, [lengths[i] for i in window])
        for i in data.draw(st.permutations(window)):
            (view,) = rows.tokens([i]) or []
            view[:] = right[i]
            if outcomes[i] == "kept":
                rows.keep(i, np.empty(0, np.float32))
    result = rows.result()
    kept = [outcome == "kept" for outcome in outcomes]
    assert result.n_tokens.tolist() == [
        length if keep else 0 for length, keep in zip(lengths, kept, strict=True)
    ]
    for i in range(n):
        np.testing.assert_array_equal(result[i], right[i][: lengths[i] if kept[i] else 0])
