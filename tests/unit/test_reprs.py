"""What a notebook shows of a result is a line, whatever the result holds."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from jmm import BothVectors, MultiVector, Trace, VisionTokens
from jmm.gallery import Answer
from jmm.inspect import HeatMap, PatchDistances

PICTURE = Image.new("RGB", (84, 56))
MANY = MultiVector(np.ones((9, 4), np.float32), [0, 4, 9])


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (MANY, "MultiVector(items=2, tokens=9, dim=4)"),
        (
            BothVectors(np.ones((2, 8), np.float32), MANY),
            "BothVectors(pooled=[2, 8], tokens=MultiVector(items=2, tokens=9, dim=4))",
        ),
        (BothVectors(np.ones(8), MANY[0]), "BothVectors(pooled=[8], tokens=[4, 4])"),
        (
            VisionTokens(np.ones((6, 64), np.float32), (4, 6), "0123"),
            "VisionTokens(tokens=6, dim=64, grid=4x6)",
        ),
        (Trace([1, 2], np.ones((2, 64)), None, (0, 2)), "Trace(tokens=2, dim=64)"),
        (
            Trace([1, -1], np.ones((2, 64)), None, (0, 2), (1, 2), (1, 1)),
            "Trace(tokens=2, dim=64, grid=1x1)",
        ),
        (
            HeatMap(PICTURE, "a bus", 1.5, np.ones((2, 3)), 0.0, np.ones((2, 3)), []),
            "HeatMap(query='a bus', score=1.5000, grid=2x3)",
        ),
        (
            PatchDistances(PICTURE, np.full((2, 3), 0.25), np.ones(4), 0.5),
            "PatchDistances(grid=2x3, max=0.25, pooled=0.5)",
        ),
        (Answer("a bus", 1, np.array([2, 1, 0]), np.zeros(3)), "Answer(query='a bus', rank=2)"),
    ],
)
def test_repr(result: object, shown: str) -> None:
    assert repr(result) == shown
