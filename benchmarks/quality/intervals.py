"""How sure a mean over queries is: the percentile bootstrap (Efron, 1979)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

N_RESAMPLES = 10_000
LEVEL = 0.95
# Resamples drawn at once; 1,000 of 1,000 queries are 8 MB.
_CHUNK = 1000


def interval(values: NDArray[np.floating], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the mean, queries drawn with replacement.

    For a paired comparison give the differences, query by query. The same seed draws the same
    queries, whatever the values.

    Args:
        values: [n], one per query.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    n = len(values)
    means = [
        np.asarray(values, np.float64)[rng.integers(0, n, (_CHUNK, n))].mean(1)
        for _ in range(N_RESAMPLES // _CHUNK)
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
