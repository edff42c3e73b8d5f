"""From the model's numbers to the vectors that the caller asked for, and their comparison."""

from jmm.vectors.rows import check_dim, finish

__all__ = ["check_dim", "finish"]
