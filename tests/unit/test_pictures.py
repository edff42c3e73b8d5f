"""Pictures as they are read: what is taken at once, and what is refused."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jmm import ContextOverflowError, InputError, VisionTokens, preprocess
from jmm.pictures import Reader, is_picture
from jmm.processor import Processor
from support import tiny

PICTURE = tiny.picture(4, 6)
TOKENS = VisionTokens(np.ones((6, 64), np.float32), (4, 6), "mine")
PROCESSOR = Processor(3136, 602_112, 14, preprocess.CLIP_MEAN, preprocess.CLIP_STD, "a test")


@pytest.fixture
def reader() -> Reader:
    return Reader(PROCESSOR, 1 << 30, reference_modes=False, fingerprint="mine")


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PICTURE).save(buffer, "png")
    return buffer.getvalue()


def sources(folder: Path) -> dict[str, Any]:
    (folder / "page.png").write_bytes(png())
    return {
        "path": folder / "page.png",
        "str": str(folder / "page.png"),
        "bytes": png(),
        "bytearray": bytearray(png()),
        "file": io.BytesIO(png()),
        "PIL": Image.fromarray(PICTURE),
        "array": PICTURE,
    }


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "bytearray", "file", "PIL", "array"])
def test_reads(kind: str, reader: Reader, tmp_path: Path) -> None:
    source = sources(tmp_path)[kind]
    assert is_picture(source)
    taken = reader.take(source)
    assert is_picture(taken)
    patches, grid_h, grid_w = reader(taken)[:3]
    assert (grid_h, grid_w) == (4, 6)
    np.testing.assert_allclose(patches, tiny.patches(PICTURE), atol=1e-6)


@pytest.mark.parametrize("kind", ["PIL", "file"])
def test_taken_is_not_what_the_caller_changes(kind: str, reader: Reader, tmp_path: Path) -> None:
    source = sources(tmp_path)[kind]
    right = reader(reader.take(sources(tmp_path)[kind]))[0]
    taken = reader.take(source)
    if kind == "PIL":
        source.paste((0, 0, 0), (0, 0, 84, 56))
    source.close()
    np.testing.assert_array_equal(reader(taken)[0], right)


def test_str_may_be_a_text() -> None:
    assert is_picture("page.png")
    assert not is_picture("page.png", str_is_path=False)
    assert is_picture(TOKENS, str_is_path=False)
    assert is_picture(Path("page.png"), str_is_path=False)
    for other in (None, 3, ["page.png"], {}, np.zeros((2, 4, 4, 3), np.uint8), object()):
        assert not is_picture(other)


def test_vision_tokens(reader: Reader) -> None:
    assert reader.take(TOKENS) is TOKENS
    values, grid_h, grid_w, is_encoded = reader(TOKENS)
    assert values is TOKENS.values
    assert (grid_h, grid_w, is_encoded) == (4, 6, True)
    with pytest.raises(InputError, match=r"'other'.*'mine'.*another tower"):
        reader(replace(TOKENS, fingerprint="other"))


def test_bad_pictures_fail_where_they_are_read(reader: Reader) -> None:
    closed = Image.open(io.BytesIO(png()))
    closed.close()
    array = np.zeros((2, 2, 7), np.uint8)
    for source in (closed, io.BytesIO(b"junk"), io.StringIO("text"), array):
        with pytest.raises(Exception):  # noqa: B017 - `arguments.fail` makes it ours
            reader(reader.take(source))
    for source in (b"junk", Path("/no/such")):
        taken = reader.take(source)
        with pytest.raises(InputError):
            reader(taken)


def test_more_tokens_than_n_ctx_are_told_before_the_cutting(reader: Reader) -> None:
    class Unused(Processor):
        def __call__(self, picture: Image.Image) -> Any:
            raise AssertionError(picture)

    values = {name: getattr(PROCESSOR, name) for name in PROCESSOR.__dataclass_fields__}
    small = replace(reader, processor=Unused(**values), n_ctx=5)
    with pytest.raises(ContextOverflowError, match="6 tokens and n_ctx is 5"):
        small(PICTURE)
    assert reader.n_ctx == math.inf
    assert replace(reader, n_ctx=6)(PICTURE)[1:] == (4, 6)
