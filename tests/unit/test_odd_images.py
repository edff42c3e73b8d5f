"""Pictures and arrays that no camera makes: their right RGB, or one of our errors, at once."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from jmm.errors import InputError
from jmm.images import modes, quiet, to_rgb
from support import odd_pictures
from support.odd_pictures import encoded, expected, noise, png

FILES = dict(odd_pictures.files(23, 17))
PIXELS = np.asarray(noise(7, 5))


@pytest.mark.parametrize("name", FILES)
def test_every_format_and_mode(name: str) -> None:
    got = np.asarray(to_rgb(FILES[name]))
    np.testing.assert_allclose(got, expected(FILES[name]), atol=1 if "A" in name[4:] else 0)


@pytest.mark.parametrize("name", FILES)
def test_cut_at_each_tenth(name: str) -> None:
    data = FILES[name]
    for tenth in range(10):
        cut = data[: len(data) * tenth // 10]
        try:
            wanted = expected(cut)
        except Exception:
            with pytest.raises(InputError):
                to_rgb(cut)
        else:
            np.testing.assert_allclose(np.asarray(to_rgb(cut)), wanted, atol=1)


@pytest.mark.parametrize(
    "mode",
    ["LA", "La", "PA", "RGBA", "RGBa", "P", "I", "I;16", "F", "L", "RGB", "1", "CMYK"],
)
def test_strips_leave_no_trace(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"La": "LA", "RGBa": "RGBA", "PA": "P"}.get(mode, mode)
    image = noise(11, 9, base).convert(mode)
    if mode in ("P", "L", "RGB", "1"):
        value = image.getpixel((3, 3))
        image.info["transparency"] = value
    whole = np.asarray(to_rgb(image))
    for n_pixels in (1, 25):
        monkeypatch.setattr(modes, "_STRIP_PIXELS", n_pixels)
        np.testing.assert_array_equal(np.asarray(to_rgb(image)), whole)


def test_a_great_jpeg_is_decoded_in_full() -> None:
    data = encoded(noise(2000, 1500), "JPEG")
    np.testing.assert_array_equal(np.asarray(to_rgb(data)), expected(data))


# --- nothing else is started, read or printed ---


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a stand-in for Ghostscript writes when it is started."""
    log = tmp_path / "started"
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho started >> {log}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    return log


def test_no_program_is_started(ghostscript: Path) -> None:
    eps = encoded(noise(4, 4), "EPS")
    for data in (eps, odd_pictures.iptc(eps, 4, 4)):
        with pytest.raises(InputError, match=r"starts? .* is not read"):
            to_rgb(data)
        with Image.open(io.BytesIO(data)) as opened, pytest.raises(InputError, match="is not read"):
            to_rgb(opened)
    assert not ghostscript.exists()
    with pytest.raises(OSError):
        Image.open(io.BytesIO(odd_pictures.iptc(eps, 4, 4))).load()
    assert ghostscript.exists()  # what Pillow alone would do


def test_libtiff_is_silent_while_we_read(capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(encoded(noise(64, 64), "TIFF", compression="tiff_lzw"))
    data[20:60] = b"\xff" * 40

    def plainly_printed() -> str:
        with pytest.raises(OSError):
            Image.open(io.BytesIO(data)).load()
        return capfd.readouterr().err

    def read() -> None:
        for _ in range(20):
            with pytest.raises(InputError):
                to_rgb(bytes(data))

    if not plainly_printed():
        pytest.skip("this build of Pillow prints nothing")
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capfd.readouterr().err == ""
    assert plainly_printed() != ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_we_read_can_read() -> None:
    data = encoded(noise(9, 9), "TIFF", compression="tiff_lzw")
    with quiet.pillow("a picture"), quiet._mute._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if to_rgb(data).size == (9, 9) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_may_keep_a_reader_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="a pipe, a socket or a device"):
            to_rgb(path)


def test_no_tiff_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class File(io.BufferedReader):
        def fileno(self) -> int:
            raise AssertionError("libtiff would map it")

    data = encoded(noise(9, 9), "TIFF", compression="tiff_lzw")
    (tmp_path / "a.tif").write_bytes(data)
    with File(io.FileIO(tmp_path / "a.tif")) as file:
        with pytest.raises(AssertionError, match="map"):
            Image.open(file).load()
        np.testing.assert_array_equal(np.asarray(to_rgb(file)), expected(data))
        monkeypatch.setattr(Path, "open", lambda *_: file)
        np.testing.assert_array_equal(np.asarray(to_rgb(tmp_path / "a.tif")), expected(data))


# --- limits ---


@pytest.mark.parametrize(
    "header",
    [
        b"P3 3000 3000 255\n",
        b"P6 3000 3000 65535\n",
        b"qoif" + (3000).to_bytes(4, "big") * 2 + b"\3\0",
    ],
)
def test_formats_that_pillow_decodes_in_python(header: bytes) -> None:
    with pytest.raises(InputError, match=r"3000x3000 pixels of .* the limit is 4194304"):
        to_rgb(header + b"0" * 100)


def test_a_tile_far_larger_than_its_picture() -> None:
    tile = np.arange(32 * 32, dtype=np.uint8).reshape(32, 32)
    got = to_rgb(odd_pictures.tiled_tiff(20, 9, 32, tile.tobytes()))
    np.testing.assert_array_equal(np.asarray(got)[:, :, 0], tile[:9, :20])
    data = odd_pictures.tiled_tiff(20, 9, 40_000, bytes(1000))
    with pytest.raises(InputError, match="20x9 pixels in tiles of 1600000000; the limit is"):
        to_rgb(data)


def test_an_icon_larger_than_it_says() -> None:
    inner = encoded(noise(40, 40))
    entry = b"\x10\x10\0\0\1\0\x20\0" + len(inner).to_bytes(4, "little") + b"\x16\0\0\0"
    icon = b"\0\0\1\0\1\0" + entry + inner
    assert to_rgb(icon).size == (40, 40)
    with pytest.raises(InputError, match="40x40 = 1600 pixels, the limit is max_image_pixels=400"):
        to_rgb(icon, max_image_pixels=400)


@pytest.mark.parametrize("side", [20_000, 60_000])
def test_bombs_of_one_bit(side: int) -> None:
    row = bytes(1 + side // 8)
    data = png(side, side, 1, 0, row * 100)
    with pytest.raises(InputError, match=rf"\({side * side} pixels\) exceeds limit"):
        to_rgb(data)


# --- arrays ---


def picture(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.asarray(to_rgb(array))


@pytest.mark.parametrize("dtype", sorted(set(np.sctypeDict.values()), key=str))
def test_one_dtype_is_taken(dtype: type[np.generic]) -> None:
    array = np.ones((5, 7, 3), dtype) if dtype is not np.void else np.zeros((5, 7), "V4")
    if dtype is np.uint8:
        assert (picture(array) == 1).all()
    else:
        with pytest.raises(InputError, match="only uint8 is taken"):
            to_rgb(array)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_layouts() -> None:
    np.testing.assert_array_equal(
        picture(np.broadcast_to(PIXELS[:1, :1], (9, 9, 3)))[3, 3], PIXELS[0, 0]
    )
    raw = np.frombuffer(b"\0" + PIXELS.tobytes(), np.uint8)[1:].reshape(PIXELS.shape)
    frozen = PIXELS.copy()
    frozen.flags.writeable = False
    for array in (raw, frozen, np.asfortranarray(PIXELS), PIXELS.view(np.recarray)):
        np.testing.assert_array_equal(picture(array), PIXELS)
    grey = PIXELS[:, :, 0]
    np.testing.assert_array_equal(picture(np.matrix(grey))[:, :, 1], grey)


def test_a_view_far_larger_than_its_memory() -> None:
    array = np.broadcast_to(np.uint8(7), (200_000, 200_000, 3))
    with pytest.raises(InputError, match="200000x200000 = 40000000000 pixels, the limit"):
        to_rgb(array)


def test_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "pixels"
    path.write_bytes(PIXELS.tobytes())
    np.testing.assert_array_equal(picture(np.memmap(path, np.uint8, "r", 0, PIXELS.shape)), PIXELS)


def test_masked_values() -> None:
    array = np.ma.array(PIXELS)
    np.testing.assert_array_equal(picture(array), PIXELS)
    array[2, 3] = np.ma.masked
    with pytest.raises(InputError, match=r"masked values; .*\.filled"):
        to_rgb(array)
    np.testing.assert_array_equal(picture(array.filled(9))[2, 3], [9, 9, 9])


class Liar(np.ndarray):
    """Says otherwise than what lies in memory."""

    __array_interface__ = {"shape": (9999, 9999, 3), "typestr": "|u1", "version": 3}  # noqa: RUF012
    shape = (9999, 9999, 3)
    strides = (9999, 3, 1)

    def tobytes(self, *_: object) -> bytes:
        raise RuntimeError("mine")

    copy = astype = reshape = __array__ = __getitem__ = tobytes  # type: ignore[assignment]


def test_an_array_that_lies() -> None:
    np.testing.assert_array_equal(picture(PIXELS.view(Liar)), PIXELS)
