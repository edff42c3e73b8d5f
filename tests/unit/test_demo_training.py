"""What the built-in model is trained and measured on: pictures, captions, held-out tests."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from demo_model import captions, card, dense, edits, evaluation, pictures, world
from demo_model.world import Scene, Value

COUNT_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
SPECK = 10


def scenes(kind: str, n: int = 40, split: world.Split | None = None) -> list[Scene]:
    rng = np.random.default_rng(7)
    return [world.sample(rng, kind, split) for _ in range(n)]


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def ink(pixels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Pixels that are not the background, which fills the corner or the middle."""
    corners = np.stack([pixels[0, 0], pixels[0, -1], pixels[-1, 0], pixels[-1, -1]])
    background = np.median(corners, axis=0)
    return np.abs(pixels - background).max(-1) > 24


def near(pixels: NDArray[np.uint8], colour: Value) -> NDArray[np.bool_]:
    """Pixels whose nearest palette colour is the given one."""
    palette = np.array(list(world.COLOURS.values()))
    distance = np.abs(pixels[:, :, None].astype(int) - palette).sum(-1)
    return distance.argmin(-1) == list(world.COLOURS).index(str(colour))


def centre(mask: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean (x, y) of a mask, 0 to 1."""
    y, x = np.nonzero(mask)
    return float(x.mean() / mask.shape[1]), float(y.mean() / mask.shape[0])


def n_islands(mask: NDArray[np.bool_]) -> int:
    """How many connected parts a mask has, specks at blended edges aside."""
    left, n = {tuple(at) for at in np.argwhere(mask).tolist()}, 0
    while left:
        edge, area = [left.pop()], 0
        while edge:
            y, x = edge.pop()
            found = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
            left -= found
            edge += found
            area += 1
        n += area > SPECK
    return n


@pytest.mark.parametrize("kind", world.KINDS)
def test_a_full_caption_names_every_value(kind: str) -> None:
    for scene in scenes(kind):
        text = captions.describe(scene, rng(), full=True).text
        for name, value in scene.attributes.items():
            if name in ("axis", "layout", "n_words", "n_digits", "count"):
                continue
            expected = str(value)
            assert re.search(rf"(?<![a-z]){expected}(?![a-df-rt-z])", text), (name, text)


def test_counts_are_spelled_out_or_given_as_digits() -> None:
    generator = rng()
    seen = set()
    for scene in scenes("count", 80):
        first = captions.describe(scene, generator, full=True).text.split()[0]
        assert COUNT_WORDS.get(first) == scene["count"] or first == str(scene["count"])
        seen.add(first.isdigit())
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("text_part", "axis", "first_named"),
    [
        ("left of", "horizontal", True),
        ("right of", "horizontal", False),
        ("above", "vertical", True),
        ("below", "vertical", False),
        ("under", "vertical", False),
    ],
)
def test_relations_name_the_objects_in_the_right_order(
    text_part: str, axis: str, first_named: bool
) -> None:
    scene = Scene(
        "relation",
        {
            "axis": axis,
            "colour": "red",
            "shape": "star",
            "colour2": "blue",
            "shape2": "ring",
            "background": "white",
        },
    )
    generator = rng()
    texts = [captions.describe(scene, generator, full=True).text for _ in range(60)]
    texts = [text for text in texts if text_part in text]
    assert texts
    for text in texts:
        assert (text.index("red star") < text.index("blue ring")) == first_named


def test_words_and_digits_keep_their_order() -> None:
    for scene in scenes("word"):
        assert " ".join(scene.slots("word")) in captions.describe(scene, rng(), full=True).text
    for scene in scenes("number"):
        assert "".join(scene.slots("digit")) in captions.describe(scene, rng(), full=True).text


@pytest.mark.parametrize("kind", world.KINDS)
def test_a_caption_is_true_of_its_scene_and_false_once_a_said_thing_changes(kind: str) -> None:
    generator = rng()
    contradicted = 0
    for scene in scenes(kind):
        caption = captions.describe(scene, generator, full=False)
        assert caption.is_true_of(scene)
        other = edits.twin(scene, generator)
        if other is None:
            continue
        changed = {name for name in scene.attributes if scene[name] != other.attributes.get(name)}
        assert caption.is_true_of(other) == (not changed & set(caption.says))
        contradicted += not caption.is_true_of(other)
    assert contradicted


def test_training_never_draws_a_held_out_combination() -> None:
    for kind in world.KINDS:
        names = world.HELD_OUT_BY[kind]

        def combination(scene: Scene, names: tuple[str, ...] = names) -> str:
            values = [scene.attributes[name] for name in names if name in scene.attributes]
            if len(values) == 1:  # one word or digit alone is known from others
                values += [scene["colour"], scene["background"]]
            return str(values)

        trained, held_out = (
            {combination(scene) for scene in scenes(kind, n, split)}
            for n, split in ((2000, "train"), (500, "test"))
        )
        assert held_out
        assert not trained & held_out


def test_one_combination_in_eight_is_held_out() -> None:
    drawn = [world.split_of(scene) for kind in world.KINDS for scene in scenes(kind, 400)]
    assert 0.10 < drawn.count("test") / len(drawn) < 0.15


@pytest.mark.parametrize("name", edits.EDITS)
def test_an_edit_changes_what_it_says_and_nothing_else(name: str) -> None:
    choice_scenes = [
        scene for scene in scenes(edits.EDITS[name].kind, 200) if edits.EDITS[name].applies(scene)
    ]
    generator = rng()
    pairs = [(scene, edits.edit(scene, name, generator)) for scene in choice_scenes]
    done = [(scene, other) for scene, other in pairs if other is not None]
    assert done
    for scene, other in done:
        assert world.is_possible(other)
        changed = {key for key in scene.attributes if scene[key] != other[key]}
        limit = 4 if "swapped" in name or "order" in name else 1
        assert 1 <= len(changed) <= limit
        if name == "count, off by one":
            assert abs(int(scene["count"]) - int(other["count"])) == 1
        if name == "count, off by more":
            assert abs(int(scene["count"]) - int(other["count"])) > 1


@pytest.mark.parametrize("kind", world.KINDS)
def test_a_seed_decides_every_pixel(kind: str) -> None:
    scene = scenes(kind, 1)[0]
    first, again = pictures.draw(scene, rng()), pictures.draw(scene, rng())
    assert first.shape == (84, 84, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, pictures.draw(scene, np.random.default_rng(4)))


def test_a_shape_lies_where_its_caption_says() -> None:
    thirds = {"left": (0, None), "right": (2, None), "top": (None, 0), "bottom": (None, 2)}
    for scene in scenes("shape"):
        column, row = 1, 1
        for word in str(scene["position"]).split():
            x, y = thirds.get(word, (None, None))
            column, row = column if x is None else x, row if y is None else y
        place = centre(near(pictures.draw(scene, rng()), scene["colour"]))
        assert [(value > 0.4) + (value > 0.6) for value in place] == [column, row], scene


def test_sizes_differ_in_area() -> None:
    for scene in scenes("shape", 10):
        areas = [
            near(pictures.draw(scene.changed(size=size), rng()), scene["colour"]).sum()
            for size in world.SIZES
        ]
        assert 1.5 * areas[0] < areas[1]
        assert 1.5 * areas[1] < areas[2]


def test_as_many_figures_are_drawn_as_counted() -> None:
    for scene in scenes("count"):
        mask = near(pictures.draw(scene, rng()), scene["colour"])
        assert n_islands(mask) == scene["count"], scene


def test_the_first_object_of_a_relation_is_left_or_above() -> None:
    for scene in scenes("relation"):
        if scene["colour"] == scene["colour2"]:
            continue
        pixels = pictures.draw(scene, rng())
        first, second = (centre(near(pixels, scene[name])) for name in ("colour", "colour2"))
        along = 0 if scene["axis"] == "horizontal" else 1
        assert first[along] < second[along] - 0.2


@pytest.mark.parametrize("kind", ["word", "number"])
def test_letters_are_drawn_inside_the_picture(kind: str) -> None:
    for scene in scenes(kind):
        pixels = pictures.draw(scene, rng())
        share = ink(pixels).mean()
        assert 0.01 < share < 0.6, scene


def test_gallery_scenes_are_distinct_and_held_out() -> None:
    sizes = {"shape": 30, "word": 20}
    gallery = evaluation.make_gallery(1, sizes)
    assert len(set(gallery.scenes)) == len(gallery.texts) == len(gallery.pixels) == 50
    assert {world.split_of(scene) for scene in gallery.scenes} == {"test"}
    again = evaluation.make_gallery(1, sizes)
    assert again.texts == gallery.texts
    np.testing.assert_array_equal(again.pixels, gallery.pixels)


def test_the_two_captions_of_a_choice_differ_in_the_changed_words_alone() -> None:
    for name in ("colour", "size", "shape", "background", "one word", "relation, one shape"):
        choice = evaluation.make_choice(name, 1, 12)
        for right, wrong in zip(choice.right, choice.wrong, strict=True):
            assert right != wrong
            pairs = list(zip(right.split(), wrong.split(), strict=True))
            articles = {"a", "an"}
            assert sum(a != b and {a, b} != articles for a, b in pairs) == 1, (right, wrong)


def test_recall_by_hand() -> None:
    scores = np.array([[0.9, 0.1, 0.2], [0.8, 0.5, 0.1], [0.3, 0.3, 0.3]])
    assert evaluation.recall(scores, 1) == pytest.approx(1 / 3)
    assert evaluation.recall(scores, 2) == pytest.approx(2 / 3)
    assert evaluation.recall(scores, 3) == 1
    kinds = [Scene(kind, {}) for kind in ("shape", "word", "word")]
    assert evaluation.recall_by_kind(scores, kinds, 2) == {"shape": 1.0, "word": 0.5}


def test_labels_are_indices_of_the_values() -> None:
    labels = dict(
        zip(world.VALUES, world.labels("count", {"colour": "green", "count": 4}), strict=True)
    )
    assert (labels["kind"], labels["colour"], labels["count"]) == (1, 3, 2)
    assert {labels[name] for name in world.VALUES if name not in ("kind", "colour", "count")} == {
        world.IGNORED
    }


def token_labels(scene: Scene) -> dict[str, NDArray[np.int64]]:
    _, sketch = pictures.sketch(scene, rng())
    return dict(zip(dense.SIZES, dense.labels(scene, sketch.cells), strict=True))


def test_token_labels_say_where_the_figures_are() -> None:
    for scene in scenes("shape"):
        labels = token_labels(scene)
        at = world.POSITIONS.index(str(scene["position"]))
        assert labels["place"].tolist() == [at if i == at else 9 for i in range(9)]
        assert labels["shape"][at] == world.SHAPES.index(str(scene["shape"]))
        assert set(labels["word"].tolist()) == {world.IGNORED}
    for scene in scenes("count"):
        assert (token_labels(scene)["place"] != 9).sum() == scene["count"]


def test_token_labels_tell_the_two_objects_of_a_relation_apart() -> None:
    for scene in scenes("relation"):
        shape = token_labels(scene)["shape"]
        (first,) = np.nonzero(shape == world.SHAPES.index(str(scene["shape"])))
        (second,) = np.nonzero(shape == 8 + world.SHAPES.index(str(scene["shape2"])))
        along = [
            int(at[0]) % 3 if scene["axis"] == "horizontal" else int(at[0]) // 3
            for at in (first, second)
        ]
        assert along == [0, 2]


def test_token_labels_give_each_line_its_word_and_each_column_its_digit() -> None:
    at = {"n_words": 2, "word1": "apple", "word2": "zebra", "colour": "red", "background": "white"}
    word = token_labels(Scene("word", at))["word"]
    last = len(world.WORDS) - 1
    nothing = 3 * len(world.WORDS)
    assert word.tolist() == [0] * 3 + [nothing] * 3 + [len(world.WORDS) + last] * 3
    at = {"n_digits": 3, "digit1": "4", "digit2": "0", "digit3": "7", "colour": "red"}
    digit = token_labels(Scene("number", {**at, "background": "white"}))["digit"]
    assert digit.tolist() == [30] * 3 + [4, 10, 27] + [30] * 3


def test_batches_depend_on_seed_step_and_worker_alone() -> None:
    pytest.importorskip("tokenizers")
    from demo_model import batches

    first, again = batches.make(1, 2, 8, 0.5), batches.make(1, 2, 8, 0.5)
    np.testing.assert_array_equal(first.pixels, again.pixels)
    np.testing.assert_array_equal(first.ids, again.ids)
    assert first.true.diagonal().all()
    assert (first.text_labels[first.text_labels != world.IGNORED].size) > 8
    said = first.text_labels != world.IGNORED
    np.testing.assert_array_equal(first.text_labels[said], first.picture_labels[said])
    for other in (batches.make(1, 3, 8, 0.5), batches.make(1, 2, 8, 0.5, worker=1)):
        assert not np.array_equal(first.pixels, other.pixels)


def test_patches_are_labelled_with_the_characters_that_they_show() -> None:
    for kind, stem in (("word", "word"), ("number", "digit")):
        for scene in scenes(kind):
            pixels, sketch = pictures.sketch(scene, rng())
            lines = [word.upper() for word in scene.slots(stem)]
            lines = lines if kind == "word" else ["".join(lines)]
            shown = ["".join(row) for row in sketch.characters]
            shown = [row for i, row in enumerate(shown) if row and row not in shown[:i]]
            # A narrow letter may fall between two middles; no other letter and no other order.
            for line, row in zip(lines, shown, strict=True):
                assert re.fullmatch("".join(f"{c}*" for c in line), row), (line, row)
                assert len(set(row)) >= len(set(line)) / 2
            labels = np.array(sketch.characters)
            inked = ink(pixels).reshape(6, 14, 6, 14).any((1, 3))
            # The foot of a 7 leaves the corners of its box empty.
            assert inked[labels != ""].mean() > 0.7
            for character in set(labels[labels != ""]):
                assert inked[labels == character].any()


def test_characters_are_ordered_as_the_patches_of_image_tokens() -> None:
    rows = [[""] * 6 for _ in range(6)]
    rows[0][0], rows[0][1], rows[1][0], rows[0][2], rows[5][5] = "ABCD9"
    labels = dense.characters(rows)
    assert labels[:5].tolist() == [0, 1, 2, 36, 3]
    assert labels[-1] == 35


def test_the_numbers_of_a_card_are_replaced_and_nothing_else() -> None:
    gallery = {
        "single": [55.6, 90.8],
        "multi": None,
        "single_by_kind": {"word": 44.0},
        "widths": {"32": [47.6, 87.4]},
    }
    measured = {"F16": {"gallery": gallery, "one_attribute": {"colour": [94.0, 96.0]}}}
    text = f"# A\n\n{card.START}\nold\n{card.END}\n\nB\n"
    filled = card.fill(text, measured)
    assert filled.startswith("# A\n")
    assert filled.endswith("\n\nB\n")
    assert "old" not in filled
    assert "| single vector | 55.6 / 90.8 |" in filled
    assert "| multi-vector, MaxSim | not measured |" in filled
    assert "| colour | 94 / 96 |" in filled
    assert card.fill(filled, measured) == filled
    with pytest.raises(ValueError, match="lacks"):
        card.fill("# A", measured)


def test_measuring_a_perfect_and_a_blind_model() -> None:
    sizes = {"shape": 12, "word": 8}
    gallery = evaluation.make_gallery(1, sizes)
    place = {text: i for i, text in enumerate(gallery.texts)}
    pixels = {picture.tobytes(): i for i, picture in enumerate(gallery.pixels)}

    def embedded(indices: list[int]) -> evaluation.Embedded:
        vectors = rng().normal(size=(len(gallery.texts), 256))
        vectors = vectors[indices] / np.linalg.norm(vectors[indices], axis=1, keepdims=True)
        return evaluation.Embedded(vectors, [np.stack([row, row]) for row in vectors])

    perfect = evaluation.Encoder(
        lambda texts: embedded([place[text] for text in texts]),
        lambda pictures: embedded([pixels[picture.tobytes()] for picture in pictures]),
    )
    measured = evaluation.measure_gallery(perfect, 1, sizes)
    assert measured["single"] == measured["multi"] == [100, 100]
    assert set(measured["single_by_kind"].values()) == {100}
    blind = evaluation.Encoder(
        lambda texts: embedded([0] * len(texts)), lambda pictures: embedded([0] * len(pictures))
    )
    assert evaluation.measure_gallery(blind, 1, sizes)["single"] == [0, 0]
    assert evaluation.measure_choice(blind, "colour", 1, 5) == [0, 0]
