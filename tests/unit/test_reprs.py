"""What a notebook shows of a result is a line, whatever the result holds."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from jmm import BothVectors, MultiVector, Trace, VisionTokens
from jmm.gallery import Answer
from jmm.inspect import HeatMap, PatchDistances
from jmm.search import Hit, Report

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
            HeatMap(PICTURE, "b" * 999, 1.5, np.ones((2, 3)), 0.0, np.ones((2, 3)), []),
            f"HeatMap(query='{'b' * 12}...{'b' * 13}', score=1.5000, grid=2x3)",
        ),
        (
            PatchDistances(PICTURE, np.full((2, 3), 0.25), np.ones(4), 0.5),
            "PatchDistances(grid=2x3, max=0.25, pooled=0.5)",
        ),
        (Answer("a bus", 1, np.array([2, 1, 0]), np.zeros(3)), "Answer(query='a bus', rank=2)"),
        (
            Answer("b" * 999, 1, np.array([2, 1, 0]), np.zeros(3)),
            f"Answer(query='{'b' * 12}...{'b' * 13}', rank=2)",
        ),
        (
            Hit("a/b.pdf", ("a/b.pdf", "c.pdf") * 99, 2, "pdf", 0.5, 0.25, "b" * 99, 7, "c" * 40),
            "Hit(+0.5000, 'a/b.pdf', page=2)",
        ),
        (Hit("b.png", ("b.png",), 1, "picture", -0.5, 0.25), "Hit(-0.5000, 'b.png')"),
        (
            Report(9, 8, 7, 6, 5, {str(path): "why" for path in range(4)}, {".a": 1, "": 2}),
            "Report(n_pages=9, n_files=8, n_unchanged=7, n_renamed=6, n_removed=5, failed=4, "
            "passed_over=3)",
        ),
    ],
)
def test_repr(result: object, shown: str) -> None:
    assert repr(result) == shown
