"""Sizes and colours of what is drawn, at known places."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jmm import InputError
from jmm.inspect import SheetCell, SheetRow, contact_sheet, drawing, output

Pixel = tuple[int, int, int]


def middle(drawn: Image.Image, row: int, column: int, cell: int = 28) -> Pixel:
    pixel = drawn.getpixel((column * cell + cell // 2, row * cell + cell // 2))
    assert isinstance(pixel, tuple)
    return pixel


def page(rows: int, columns: int, colour: str = "white") -> Image.Image:
    return Image.new("RGB", (28 * columns, 28 * rows), colour)


def test_colours_of_cells() -> None:
    values = np.zeros((3, 16))
    values[0, 0], values[2, 15], values[1, 4] = 4, -4, 2
    drawn = drawing.heat(page(3, 16), values)
    assert drawn.size == (448, 84)
    # Channel by channel 255 + 0.8 * (colour - 255), by the docstring's formula.
    assert middle(drawn, 0, 0) == (227, 51, 51)
    assert middle(drawn, 2, 15) == (51, 99, 227)
    # half as strong
    assert middle(drawn, 1, 4) == (241, 153, 153)
    assert middle(drawn, 1, 5) == (255, 255, 255)
    # a cell ends after 28 pixels
    assert [drawn.getpixel((x, 0)) for x in (27, 28)] == [(227, 51, 51), (255, 255, 255)]
    assert [drawn.getpixel((0, y)) for y in (27, 28)] == [(227, 51, 51), (255, 255, 255)]


def test_the_page_becomes_grey() -> None:
    drawn = drawing.heat(page(1, 16, "red"), np.zeros((1, 16)))
    # Rec. 601 luma of (255, 0, 0) is 76; half as far from white it is 165.5.
    assert np.unique(np.asarray(drawn)).tolist() == [166]


def test_a_common_scale() -> None:
    weak = drawing.heat(page(1, 16), np.full((1, 16), 1.0), limit=2.0)
    assert middle(weak, 0, 3) == (241, 153, 153)
    beyond = drawing.heat(page(1, 16), np.full((1, 16), 9.0), limit=2.0)
    assert middle(beyond, 0, 3) == (227, 51, 51)


@pytest.mark.parametrize(
    ("rows", "columns", "scale"), [(1, 1, 16), (3, 3, 6), (2, 15, 2), (40, 2, 1)]
)
def test_small_pages_are_enlarged(rows: int, columns: int, scale: int) -> None:
    values = np.zeros((rows, columns))
    values[-1, -1] = 1
    drawn = drawing.heat(page(rows, columns), values)
    assert drawn.size == (28 * columns * scale, 28 * rows * scale)
    assert middle(drawn, rows - 1, columns - 1, 28 * scale) == (227, 51, 51)
    if rows * columns > 1:
        assert middle(drawn, 0, 0, 28 * scale) == (255, 255, 255)


def test_notes_stand_beneath() -> None:
    drawn = drawing.with_notes(page(2, 16, "red"), ["one", "two " * 200])
    assert drawn.width == 448
    assert drawn.crop((0, 0, 448, 56)).getcolors() == [(448 * 56, (255, 0, 0))]
    beneath = np.asarray(drawn)[56:]
    assert beneath.min() < 100  # ink
    # nothing is cut off at the edges
    assert (beneath[:, -1] == 255).all()
    assert (beneath[-1] == 255).all()


def test_long_notes_are_cut() -> None:
    """Thousands of letters and words cost no time, and no more than six lines."""
    short = drawing.with_notes(page(2, 16), ["one line"]).height
    for note in ("x" * 200_000, "word " * 40_000, f"{'y' * 50_000} z"):
        drawn = drawing.with_notes(page(2, 16), [note])
        assert drawn.height <= short + 5 * 22
        assert (np.asarray(drawn)[56:, -1] == 255).all()
    cut = drawing._cut("x" * 200, drawing.lettering("x", 16)[0], 200)
    font = drawing.lettering("x", 16)[0]
    assert cut.endswith("x...")
    assert font.getlength(cut) <= 200 < font.getlength(f"x{cut}")
    assert drawing._cut("abc", font, 1) == "..."


def test_the_scale_goes_through_the_colours() -> None:
    signed, plain = (drawing.scale_bar(0.25, signed=signed) for signed in (True, False))
    right = [bar.getpixel((drawing.BAR_WIDTH - 2, 5)) for bar in (signed, plain)]
    assert right == [pytest.approx((227, 51, 51), abs=2)] * 2
    assert signed.getpixel((1, 5)) == pytest.approx((51, 99, 227), abs=2)
    assert signed.getpixel((drawing.BAR_WIDTH // 2, 5)) == pytest.approx((255, 254, 254), abs=2)
    assert plain.getpixel((1, 5)) == pytest.approx((255, 255, 255), abs=2)
    # numbers beneath both ends, and nothing cut off
    for bar in (signed, plain):
        beneath = np.asarray(bar)[drawing.BAR_HEIGHT :]
        ink = np.flatnonzero((beneath < 100).any(axis=(0, 2)))
        assert ink.min() < 20
        assert ink.max() > drawing.BAR_WIDTH - 20


def test_a_white_page_has_an_edge() -> None:
    drawn = drawing.framed(page(2, 2))
    inner = drawn.crop((1, 1, 55, 55))
    assert inner.getcolors() == [(54 * 54, (255, 255, 255))]
    assert drawn.getcolors() == [(54 * 54, (255, 255, 255)), (4 * 55, drawing.FAINT)]


def test_contact_sheet() -> None:
    cells = [
        SheetCell(Image.new("RGB", (40, 80), "red"), "one"),
        SheetCell(Image.new("L", (80, 40), 0), "x" * 200, marked=True),
    ]
    sheet = contact_sheet([SheetRow("a title", cells), SheetRow("", cells[:1])], side=100)
    assert sheet.size == (12 + 2 * 112, 12 + 2 * (22 + 100 + 22 + 12 + 12))
    top = 12 + 22
    assert sheet.getpixel((12 + 50, top + 50)) == (255, 0, 0)
    assert sheet.getpixel((12 + 10, top + 50)) == (255, 255, 255)  # beside the narrow one
    assert sheet.getpixel((12 + 112 + 50, top + 50)) == (0, 0, 0)
    assert sheet.getpixel((12 + 112 - 1, top + 50)) == drawing.MARK
    assert sheet.getpixel((12 - 1, top + 50)) == drawing.FAINT
    assert sheet.getpixel((12 + 50, top + 168 + 50)) == (255, 0, 0)


@pytest.mark.parametrize("rows", [[], [SheetRow("a title", [])]])
def test_a_sheet_of_nothing(rows: list[SheetRow]) -> None:
    with pytest.raises(InputError, match="no picture to draw"):
        contact_sheet(rows)


def test_output_is_two_files(tmp_path: Path) -> None:
    record = {"query": "naïve 数", "values": [0.1, 2.5e-9]}
    written = output.save(tmp_path / "a.png", page(2, 2), record)
    assert written == tmp_path / "a.json"
    assert json.loads(written.read_text("utf-8")) == record
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.size == (56, 56)
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.png"]


def test_a_name_of_any_bytes_is_written(tmp_path: Path) -> None:
    record = {"page": os.fsdecode(b"caf\xe9.png")}
    written = output.save(tmp_path / "a.png", page(2, 2), record)
    assert written.read_bytes().isascii()
    assert json.loads(written.read_text()) == record


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for suffix in (".png", ".json"):
        (tmp_path / f"a{suffix}").symlink_to(Path("there") / f"b{suffix}")
    for record in ({"one": 1}, {"two": 2}):
        output.save(tmp_path / "a.png", page(2, 2), record)
        assert (tmp_path / "a.png").is_symlink()
        assert json.loads((tmp_path / "there" / "b.json").read_text()) == record
    assert sorted(os.listdir(tmp_path / "there")) == ["b.json", "b.png"]


def test_files_are_as_open_makes_them(tmp_path: Path) -> None:
    written = output.save(tmp_path / "a.png", page(2, 2), {})
    (tmp_path / "plain").write_text("")
    modes = {path.stat().st_mode for path in (written, tmp_path / "a.png", tmp_path / "plain")}
    assert len(modes) == 1


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    output.save(tmp_path / "a.png", page(2, 2), {"old": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TypeError):
        output.save(tmp_path / "a.png", page(3, 3), {"bad": object()})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.jpg", "a name that ends in .png"),
        ("", "a name that ends in .png"),
        ("taken.png", "taken.json: it cannot be written"),
        ("notes.png", "notes.json: the numbers would overwrite this file"),
        ("link.png", "link.json: it cannot be written"),
        ("none/a.png", "there is no folder"),
        ("folder.png", "it cannot be written"),
    ],
)
def test_places_that_cannot_be_written(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "taken.json").mkdir()
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "none" / "a.json")
    with pytest.raises(InputError, match=message):
        output.check(tmp_path / name if name else "")
