"""What an engine gives back for one repetition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(kw_only=True)
class Timing:
    """Seconds of one repetition.

    Attributes:
        total: What counts.
        vision: The part in the vision tower, None where it cannot be told.
        language: The part in the language model.
        prepare: Work before that is not in ``total``.
        processor: Of all threads in ``total``, which neighbours on the machine hardly change.
        vectors: Not normalised, [n, dim]; to see that engines compute the same.
    """

    total: float
    vision: float | None = None
    language: float | None = None
    prepare: float | None = None
    processor: float | None = None
    vectors: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0)))
