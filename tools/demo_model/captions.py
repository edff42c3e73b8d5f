"""Scenes in words.

A caption may leave attributes out; what it says decides which other pictures it is true of::

    >>> caption = describe(scene, rng, full=True)
    >>> caption.text
    'a small red star at the top left on a white background'
    >>> caption.is_true_of(scene)
    True
"""

from __future__ import annotations

from dataclasses import dataclass

from demo_model.world import SYMMETRIC_LAYOUTS, Rng, Scene, Value

NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
# How often a detail is left out of a caption that need not be full.
LEFT_OUT = 0.4


@dataclass(frozen=True)
class Caption:
    """A text and what it says.

    Attributes:
        text: The caption.
        kind: The scene's kind.
        says: The attributes that it mentions, with their values.
    """

    text: str
    kind: str
    says: dict[str, Value]

    def is_true_of(self, scene: Scene) -> bool:
        """Whether nothing in the caption contradicts the scene."""
        return scene.kind == self.kind and all(
            scene.attributes.get(name) == value for name, value in self.says.items()
        )


def _pick(rng: Rng, *choices: str) -> str:
    return choices[rng.integers(len(choices))]


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def _article(text: str) -> str:
    return f"an {text}" if text[0] in "aeiou" else f"a {text}"


def _background(rng: Rng, colour: Value) -> str:
    return _pick(rng, f" on a {colour} background", f" on {colour}", f", {colour} background")


def _shape(scene: Scene, rng: Rng, said: set[str]) -> str:
    size = f"{scene['size']} " if "size" in said else ""
    colour = f"{scene['colour']} " if "colour" in said else ""
    text = f"{size}{colour}{scene['shape']}"
    if rng.random() < 0.8:
        text = _article(text)
    if "position" in said:
        where = scene["position"]
        text += _pick(rng, f" at the {where}", f" in the {where}", f", {where}")
    return text


def _count(scene: Scene, rng: Rng, said: set[str]) -> str:
    count = int(scene["count"])
    number = NUMBER_WORDS[count] if rng.random() < 0.75 else str(count)
    colour = f"{scene['colour']} " if "colour" in said else ""
    return f"{number} {colour}{_plural(str(scene['shape']))}"


def _relation(scene: Scene, rng: Rng, said: set[str]) -> str:
    first = f"{scene['colour']} " if "colour" in said else ""
    second = f"{scene['colour2']} " if "colour2" in said else ""
    first, second = _article(first + str(scene["shape"])), _article(second + str(scene["shape2"]))
    horizontal = scene["axis"] == "horizontal"
    if rng.random() < 0.5:
        word = _pick(rng, "left of", "to the left of") if horizontal else "above"
        return f"{first} {word} {second}"
    word = _pick(rng, "right of", "to the right of") if horizontal else _pick(rng, "below", "under")
    return f"{second} {word} {first}"


def _layout(scene: Scene, rng: Rng, said: set[str]) -> str:
    name = str(scene["layout"])
    if "colour2" not in said:
        return name
    first, second = scene["colour"], scene["colour2"]
    if name.endswith("half"):
        a, b = name.removesuffix(" half").split(" and ")
        return f"{a} {first} half and {b} {second} half"
    if name in SYMMETRIC_LAYOUTS:
        both = _pick(rng, f"{first} and {second}", f"{second} and {first}")
        return _pick(rng, f"{both} {name}", f"{name}, {both}")
    return f"{name}{_pick(rng, ' in', ',')} {first} on {second}"


def _word(scene: Scene, rng: Rng, said: set[str]) -> str:
    words = scene.slots("word")
    noun = "word" if len(words) == 1 else "words"
    text = _pick(rng, f"the {noun} ", f"the {noun} ", "the text ", "")
    text += " ".join(words)
    return text + (f" in {scene['colour']}" if "colour" in said else "")


def _number(scene: Scene, rng: Rng, said: set[str]) -> str:
    text = _pick(rng, "the number ", "the number ", "number ", "")
    text += "".join(scene.slots("digit"))
    return text + (f" in {scene['colour']}" if "colour" in said else "")


_WRITERS = {
    "shape": (_shape, ("size", "colour", "position", "background")),
    "count": (_count, ("colour", "background")),
    "relation": (_relation, ("colour", "colour2", "background")),
    "layout": (_layout, ("colour", "colour2")),
    "word": (_word, ("colour", "background")),
    "number": (_number, ("colour", "background")),
}


def describe(scene: Scene, rng: Rng, *, full: bool) -> Caption:
    """Writes a caption.

    Args:
        scene: What the picture shows.
        rng: Chooses the wording, and what is left out.
        full: Whether every attribute is mentioned.
    """
    write, optional = _WRITERS[scene.kind]
    left_out = {name for name in optional if not full and rng.random() < LEFT_OUT}
    if "colour2" in optional and left_out & {"colour", "colour2"}:
        left_out |= {"colour", "colour2"}
    said = set(scene.attributes) - left_out
    text = write(scene, rng, said)
    if "background" in said:
        text += _background(rng, scene["background"])
    return Caption(text, scene.kind, {name: scene[name] for name in sorted(said)})
