"""Scenes that differ in one thing: twins for training, and the one-attribute tests.

>>> rng = np.random.default_rng(0)
>>> scene = world.sample(rng, "shape")
>>> edit(scene, "size", rng).attributes["size"] != scene["size"]
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from demo_model import world
from demo_model.world import Rng, Scene, Split, Value

MAX_TRIES = 200


def other(name: str, rng: Rng, scene: Scene) -> Scene:
    """Another value of one attribute."""
    values = [value for value in world.VALUES[name] if value != scene[name]]
    if name.startswith("colour"):
        values = [value for value in values if value in world.INKS]
    return scene.changed(**{name: values[rng.integers(len(values))]})


def exchanged(scene: Scene, *pairs: tuple[str, str]) -> Scene:
    """The values of two attributes swapped, for each pair."""
    values: dict[str, Value] = {}
    for a, b in pairs:
        values |= {a: scene[b], b: scene[a]}
    return scene.changed(**values)


def _any_slot(stem: str, rng: Rng, scene: Scene) -> Scene:
    return other(f"{stem}{rng.integers(int(scene[f'n_{stem}s'])) + 1}", rng, scene)


def _count(rng: Rng, scene: Scene, *, near: bool) -> Scene:
    count = int(scene["count"])
    values = [c for c in world.COUNTS if c != count and (abs(c - count) == 1) == near]
    return scene.changed(count=values[rng.integers(len(values))])


@dataclass(frozen=True)
class Edit:
    """One way of changing a scene.

    Attributes:
        kind: The scenes that it applies to.
        apply: Gives the changed scene, which may be impossible or equal.
        where: Values that the scene must have.
    """

    kind: str
    apply: Callable[[Rng, Scene], Scene]
    where: dict[str, Value] = field(default_factory=dict)

    def applies(self, scene: Scene) -> bool:
        """Whether the scene can be changed so."""
        return scene.kind == self.kind and all(
            scene.attributes.get(name) == value for name, value in self.where.items()
        )


def _other(name: str) -> Callable[[Rng, Scene], Scene]:
    return lambda rng, scene: other(name, rng, scene)


EDITS: dict[str, Edit] = {
    "colour": Edit("shape", _other("colour")),
    "background": Edit("shape", _other("background")),
    "size": Edit("shape", _other("size")),
    "shape": Edit("shape", _other("shape")),
    "position": Edit("shape", _other("position")),
    "count, off by one": Edit("count", lambda rng, scene: _count(rng, scene, near=True)),
    "count, off by more": Edit("count", lambda rng, scene: _count(rng, scene, near=False)),
    "shape of several": Edit("count", _other("shape")),
    "relation, places swapped": Edit(
        "relation",
        lambda _, scene: exchanged(scene, ("colour", "colour2"), ("shape", "shape2")),
    ),
    "relation, axis": Edit("relation", _other("axis")),
    "relation, colours swapped": Edit(
        "relation", lambda _, scene: exchanged(scene, ("colour", "colour2"))
    ),
    "relation, one shape": Edit(
        "relation", lambda rng, scene: other(("shape", "shape2")[rng.integers(2)], rng, scene)
    ),
    "layout": Edit("layout", _other("layout")),
    "layout, colours swapped": Edit(
        "layout", lambda _, scene: exchanged(scene, ("colour", "colour2"))
    ),
    "one word": Edit("word", _other("word1"), {"n_words": 1}),
    "one of two words": Edit(
        "word", lambda rng, scene: _any_slot("word", rng, scene), {"n_words": 2}
    ),
    "one of three words": Edit(
        "word", lambda rng, scene: _any_slot("word", rng, scene), {"n_words": 3}
    ),
    "order of two words": Edit(
        "word", lambda _, scene: exchanged(scene, ("word1", "word2")), {"n_words": 2}
    ),
    "one digit": Edit("number", _other("digit1"), {"n_digits": 1}),
    "one of three digits": Edit(
        "number", lambda rng, scene: _any_slot("digit", rng, scene), {"n_digits": 3}
    ),
    "order of two digits": Edit(
        "number", lambda _, scene: exchanged(scene, ("digit1", "digit2")), {"n_digits": 2}
    ),
}


def edit(scene: Scene, name: str, rng: Rng, split: Split | None = None) -> Scene | None:
    """Changes one thing.

    Args:
        scene: The scene.
        name: A key of `EDITS` that applies to it.
        rng: Draws the new value.
        split: The split that the result must belong to, None for any.

    Returns:
        A possible, different scene, or None if none was found.
    """
    for _ in range(MAX_TRIES):
        result = EDITS[name].apply(rng, scene)
        fits = result != scene and world.is_possible(result)
        if fits and split in (None, world.split_of(result)):
            return result
    return None


def twin(scene: Scene, rng: Rng, split: Split | None = None) -> Scene | None:
    """Changes one thing, drawn from all edits that apply; None if that leads nowhere."""
    names = [name for name, candidate in EDITS.items() if candidate.applies(scene)]
    return edit(scene, names[rng.integers(len(names))], rng, split) if names else None
