"""From the model's numbers to the vectors that the caller asked for, and their comparison."""

from jmm.vectors.late import maxsim
from jmm.vectors.multi import MultiVector
from jmm.vectors.pooling import pool_tokens
from jmm.vectors.precision import Precision, calibrate, check_precision, check_ranges, quantize
from jmm.vectors.rows import check_dim, finish

__all__ = [
    "MultiVector",
    "Precision",
    "calibrate",
    "check_dim",
    "check_precision",
    "check_ranges",
    "finish",
    "maxsim",
    "pool_tokens",
    "quantize",
]
