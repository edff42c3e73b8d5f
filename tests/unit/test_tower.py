"""The oracle of vision towers against transformers' outputs."""

from __future__ import annotations

import pytest

from support import golden, tiny
from support.sequences import relative_error
from support.tower import Tower

# transformers' angles are float32.
TOLERANCE = 1e-6
LARGE = 300


@pytest.mark.parametrize("name", tiny.MODELS)
def test_golden_towers(name: str) -> None:
    tower = Tower(tiny.MODELS[name], golden.weights(name))
    for case in golden.load(name).values():
        if case.vit is not None and len(case.grids) == 1 and len(case.ids) < LARGE:
            assert relative_error(tower(case.patches(), case.grids[0]), case.vit) <= TOLERANCE
