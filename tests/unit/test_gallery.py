"""The demo's pictures: unlike one another, the same each time, and as their captions say."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from jmm.errors import MissingExtraError
from jmm.gallery import QUERIES, pictures

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from demo_model import world

ENTRIES = pictures()


def found(caption: str) -> np.ndarray:
    (entry,) = (entry for entry in ENTRIES if entry.caption == caption)
    return np.asarray(entry.picture).astype(int)


def near(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.abs(picture - colour).max(axis=2) < 30


def n_parts(mask: np.ndarray) -> int:
    """Connected parts, by flooding."""
    flooded = Image.fromarray(mask.astype(np.uint8) * 255)
    parts = 0
    left = mask.copy()
    while left.any():
        y, x = np.argwhere(left)[0]
        stack = [(int(y), int(x))]
        while stack:
            row, column = stack.pop()
            if 0 <= row < flooded.height and 0 <= column < flooded.width and left[row, column]:
                left[row, column] = False
                stack += [
                    (row + 1, column),
                    (row - 1, column),
                    (row, column + 1),
                    (row, column - 1),
                ]
        parts += 1
    return parts


def test_a_few_dozen_unlike_pictures() -> None:
    assert 24 <= len(ENTRIES) <= 60
    assert {(entry.picture.mode, entry.picture.size) for entry in ENTRIES} == {("RGB", (84, 84))}
    assert len({entry.picture.tobytes() for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry.caption for entry in ENTRIES}) == len(ENTRIES)


def test_a_pillow_without_freetype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda name: name != "freetype2")
    with pytest.raises(MissingExtraError, match="a Pillow with FreeType"):
        pictures()


def test_the_same_each_time() -> None:
    again = pictures()
    assert [entry.picture.tobytes() for entry in again] == [
        entry.picture.tobytes() for entry in ENTRIES
    ]


@pytest.mark.parametrize(
    ("caption", "colour", "count"),
    [
        ("two blue squares on white", (50, 90, 220), 2),
        ("three blue squares on white", (50, 90, 220), 3),
        ("five blue squares on white", (50, 90, 220), 5),
        ("four red hearts on yellow", (220, 40, 40), 4),
        ("six white stars on black", (250, 250, 250), 6),
        ("three green crosses on grey", (50, 160, 70), 3),
    ],
)
def test_counts(caption: str, colour: tuple[int, int, int], count: int) -> None:
    assert n_parts(near(found(caption), colour)) == count


def middle_of(picture: np.ndarray, colour: tuple[int, int, int]) -> tuple[float, float]:
    y, x = np.nonzero(near(picture, colour))
    return float(x.mean()), float(y.mean())


def test_places() -> None:
    x, y = middle_of(
        found("a medium yellow star at the bottom left on a black background"), (250, 220, 50)
    )
    assert x < 28
    assert y > 56
    red, blue = (220, 40, 40), (50, 90, 220)
    for caption, sign in (
        ("a red square left of a blue circle", 1),
        ("a blue circle left of a red square", -1),
    ):
        picture = found(f"{caption} on white")
        assert (middle_of(picture, blue)[0] - middle_of(picture, red)[0]) * sign > 30
    picture = found("a green star above an orange ring on white")
    assert middle_of(picture, (245, 140, 30))[1] - middle_of(picture, (50, 160, 70))[1] > 30


def test_words_are_written_inside() -> None:
    for entry in ENTRIES:
        if entry.caption.startswith(("the word", "the number")):
            picture = np.asarray(entry.picture).astype(int)
            ink = np.abs(picture - picture[0, 0]).max(axis=2) > 60
            y, x = np.nonzero(ink)
            assert x.min() > 1
            assert x.max() < 82
            assert y.max() - y.min() >= 8, entry.caption


def test_queries_ask_for_pictures_that_are_there() -> None:
    assert len(QUERIES) >= 8
    for query, place in QUERIES.items():
        words = set(query.replace(",", "").split()) - {"a", "the", "of", "on", "background", "at"}
        true = [
            index
            for index, entry in enumerate(ENTRIES)
            if words <= set(entry.caption.replace(",", "").split())
        ]
        if query == "a blue circle left of a red square":
            true.remove(19)  # the two swapped
        assert true == [place], query


def test_the_gallery_shows_the_world_that_the_model_was_trained_on() -> None:
    """Two drawings of one world: the package's and the training's agree on what is in it."""
    drawn = import_module("jmm.gallery.pictures")
    assert drawn._COLOURS == world.COLOURS
    assert set(drawn._FIGURES) == set(world.SHAPES)
    assert {name: (x, y) for name, (x, y) in drawn._PLACES.items()} == {
        name: (index % 3, index // 3) for index, name in enumerate(world.POSITIONS)
    }
    assert tuple(drawn._RADII) == world.SIZES
    assert tuple(drawn._NUMBERS.values()) == world.COUNTS
    backgrounds = {
        entry.caption.rsplit(" on ", 1)[1].removeprefix("a ").removesuffix(" background")
        for entry in ENTRIES
        if " on " in entry.caption and not entry.caption.startswith("a frame")
    }
    assert backgrounds <= set(world.BACKGROUNDS)
    for entry in ENTRIES:
        words = entry.caption.split()
        if words[:2] == ["the", "word"]:
            assert words[2] in world.WORDS
        if words[:2] == ["the", "number"]:
            assert set(words[2]) <= set(world.DIGITS)
            assert len(words[2]) <= world.SLOTS
