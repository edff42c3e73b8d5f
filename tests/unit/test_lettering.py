"""Captions in many letters: nothing is drawn as the box of a missing character."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from jmm.inspect import lettering as module
from jmm.inspect.lettering import lettering

Monkeypatch = pytest.MonkeyPatch
TEXTS = (
    "résumé.md",
    "été à Noël",
    "Straße",
    "数 of\u00a0three",
    "a\ud800b",
    "\x00",
    "e\u0301 \u200b",
)


@pytest.fixture
def alone(monkeypatch: Monkeypatch) -> Iterator[None]:
    """As on a machine without fonts."""
    monkeypatch.setattr(module, "FILES", ())
    module._paths.cache_clear()
    yield
    module._paths.cache_clear()


def drawn(text: str, font: object) -> np.ndarray:
    picture = Image.new("L", (400, 40), 255)
    ImageDraw.Draw(picture).text((0, 0), text, 0, font)  # type: ignore[arg-type]
    return np.asarray(picture)


def box(font: object) -> np.ndarray:
    return drawn("\U0010ffff", font)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("résumé.md", "resume.md"),
        ("été à Noël", "ete a Noel"),
        ("e\u0301", "e"),
        ("Straße", "Stra?e"),
        ("数 of\u00a0three", "? of three"),
        ("a\ud800b", "a?b"),
        ("\x00\n\t|", "? |"),
        ("a\u200db", "ab"),
        ("", ""),
    ],
)
def test_without_fonts(text: str, right: str) -> None:
    font, shown = lettering(text, 16)
    assert shown == right
    assert font.getlength(shown) >= 0


@pytest.mark.usefixtures("alone")
def test_a_pillow_without_freetype(monkeypatch: Monkeypatch) -> None:
    load = ImageFont.load_default

    def without(size: float | None = None) -> object:
        if size is not None:
            raise ModuleNotFoundError("_imagingft")
        return load() if not isinstance(load(), ImageFont.FreeTypeFont) else bitmap()

    def bitmap() -> ImageFont.ImageFont:
        return ImageFont.load_default_imagefont()

    monkeypatch.setattr(ImageFont, "load_default", without)
    module._font.cache_clear()
    module._has.cache_clear()
    try:
        font, shown = lettering("été 数", 16)
        assert shown == "ete ?"
        assert drawn(shown, font).min() < 128
    finally:
        monkeypatch.undo()
        module._font.cache_clear()
        module._has.cache_clear()


@pytest.mark.parametrize("text", TEXTS)
def test_no_character_is_a_box(text: str) -> None:
    """On this machine's fonts, whatever they are."""
    font, shown = lettering(text, 16)
    for character in shown:
        if character != " ":
            assert not np.array_equal(drawn(character, font), box(font)), character


def test_a_font_of_the_system_draws_accents(tmp_path: Path, monkeypatch: Monkeypatch) -> None:
    try:
        installed = Path(ImageFont.truetype("DejaVuSans.ttf", 16).path)
    except OSError:
        pytest.skip("this machine has no DejaVu fonts")
    folder = tmp_path / "fonts" / "deep"
    folder.mkdir(parents=True)
    (folder / "DejaVuSans.ttf").write_bytes(installed.read_bytes())
    (folder / "FreeSans.ttf").write_bytes(b"no font")
    monkeypatch.setenv("XDG_DATA_DIRS", f":{tmp_path}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    module._paths.cache_clear()
    try:
        assert module._paths() == (str(folder / "DejaVuSans.ttf"), None)
        assert lettering("résumé ß", 16)[1] == "résumé ß"
        assert lettering("数", 16)[1] == "?"
    finally:
        module._paths.cache_clear()


def test_the_font_that_has_most(monkeypatch: Monkeypatch) -> None:
    """The first font, unless a later one has a character that it lacks."""
    has = {"a": set("abc"), "b": set("abcé")}
    monkeypatch.setattr(module, "_paths", lambda: ("a", "b"))
    monkeypatch.setattr(module, "_has", lambda path, character: character in has[str(path)])
    monkeypatch.setattr(module, "_font", lambda path, size: (path, size))
    assert lettering("cab", 20) == (("a", 20), "cab")
    assert lettering("cabé", 20) == (("b", 20), "cabé")
    has["a"].add("?")
    assert lettering("x", 20) == (("a", 20), "?")
