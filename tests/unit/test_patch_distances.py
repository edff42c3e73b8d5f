"""Distances of hidden states by hand, and what cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from jmm import InputError
from jmm.inspect import Comparison, PatchDistances, compare, patch_distances
from jmm.inspect.compare import LEAST_LIMIT, distances
from jmm.trace import Trace

PICTURE = Image.new("RGB", (84, 56), "white")
IDS = [7, *[-1] * 6, 8, 9]


def trace(hidden: np.ndarray) -> Trace:
    return Trace(IDS, hidden.astype(np.float32), None, (0, 8), (1, 7), (2, 3))


@pytest.fixture
def hidden() -> np.ndarray:
    """Eight rows along the first axis, of different lengths."""
    rows = np.zeros((9, 4))
    rows[:, 0] = np.arange(1, 10)
    return rows


def test_equal_rows_are_exactly_0_apart() -> None:
    rows = np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32)
    assert distances(rows, rows).max() == 0
    assert distances(rows, 4 * rows).max() == 0


@pytest.mark.parametrize("degrees", [0.001, 1, 30, 60, 90, 179, 180])
def test_known_angles(degrees: float) -> None:
    angle = np.deg2rad(degrees)
    turned = np.array([[np.cos(angle), np.sin(angle)]]) * 3
    # The exact form of 1 - cos; cosines themselves lose it at a thousandth of a degree.
    right = 2 * np.sin(angle / 2) ** 2
    np.testing.assert_allclose(distances(np.array([[5.0, 0]]), turned), [right], rtol=1e-9)


def test_only_the_perturbed_cell_is_apart(hidden: np.ndarray) -> None:
    changed = hidden.copy()
    changed[1 + 1 * 3 + 2] = [1, np.sqrt(3), 0, 0]  # row 1, column 2, turned by 60 degrees
    found = patch_distances(PICTURE, trace(hidden), trace(changed))
    right = np.zeros((2, 3))
    right[1, 2] = 0.5
    np.testing.assert_allclose(found.cells, right, atol=1e-12)
    assert (found.around == 0).all()
    record = found.record()
    assert record["max_at"] == [1, 2]
    np.testing.assert_allclose(record["mean"], 0.5 / 6)
    before, after = hidden[:8].mean(0), changed[:8].mean(0)
    cosine = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
    np.testing.assert_allclose(found.pooled, 1 - cosine, rtol=1e-6)


def test_tokens_around_the_picture(hidden: np.ndarray) -> None:
    changed = hidden.copy()
    changed[8] = [0, 1, 0, 0]
    found = patch_distances(PICTURE, trace(hidden), trace(changed))
    assert (found.cells == 0).all()
    np.testing.assert_allclose(found.around, [0, 0, 1])
    assert found.pooled == 0


def test_the_other_may_be_made_of_ours(hidden: np.ndarray) -> None:
    ours = trace(hidden)
    found = compare(("a", "b"), PICTURE, [ours, ours], lambda one: replace(one, hidden=-one.hidden))
    np.testing.assert_allclose(found.high.cells, 2)
    assert found.draw().size[0] > 2 * 448


@pytest.mark.parametrize("strongest", ["low", "high"])
def test_both_maps_have_one_scale(strongest: str) -> None:
    """The weaker map, a quarter as strong, is a quarter as red."""
    parts = {
        name: PatchDistances(
            Image.new("RGB", (448, 448), "white"),
            np.full((16, 16), 0.4 if name == strongest else 0.1),
            np.zeros(1),
            0.0,
        )
        for name in ("low", "high")
    }
    drawn = Comparison("a", "b", parts["low"], parts["high"]).draw()
    left = {"low": 100, "high": 448 + 12 + 100}
    weaker = "low" if strongest == "high" else "high"
    assert drawn.getpixel((left[strongest], 100)) == (227, 51, 51)
    assert drawn.getpixel((left[weaker], 100)) == (248, 204, 204)


def test_rounding_is_not_drawn_in_full_red() -> None:
    """A tenth of `LEAST_LIMIT` is a tenth as red, and the notes say why."""
    far, near = (
        PatchDistances(
            Image.new("RGB", (448, 448), "white"), np.full((16, 16), value), np.zeros(1), 0.0
        )
        for value in (2 * LEAST_LIMIT, 0.1 * LEAST_LIMIT)
    )
    drawn = Comparison("a", "b", near, near).draw()
    # Channel by channel 255 + 0.8 * 0.1 * (colour - 255).
    assert drawn.getpixel((100, 100)) == (252, 235, 235)
    drawn = Comparison("a", "b", near, far).draw()
    assert drawn.getpixel((448 + 12 + 100, 100)) == (227, 51, 51)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": (3, 2)}, r"9 tokens with a grid of \(2, 3\) and 9 with \(3, 2\)"),
        ({"ids": [6, *IDS[1:]]}, "the same pixel limits"),
        ({"hidden": np.ones((9, 5), np.float32)}, "have 4 and 5 numbers"),
        ({"grid": None, "picture": None}, "there is no picture to look at"),
        ({"grid": None}, "this model cuts pictures into tiles"),
    ],
)
def test_what_cannot_be_compared(
    change: dict[str, object], message: str, hidden: np.ndarray
) -> None:
    ours = trace(hidden)
    with pytest.raises(InputError, match=message):
        patch_distances(PICTURE, ours, replace(ours, **change))
