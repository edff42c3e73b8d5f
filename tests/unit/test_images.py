"""Every mode and source becomes the right RGB; everything else becomes one of our errors."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from jmm.errors import InputError, JmmError, OutOfMemoryError
from jmm.images import is_image, to_rgb

WHITE = (255, 255, 255)


def pixel(image: Image.Image, **options: bool) -> tuple[int, ...]:
    return to_rgb(image, **options).getpixel((0, 0))


def encoded(image: Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def png(width: int, height: int, depth: int, colour: int, rows: bytes, **chunks: bytes) -> bytes:
    """A PNG by hand, for depths that Pillow does not write; rows start with a filter byte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
        + b"".join(chunk(name.encode(), data) for name, data in chunks.items())
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def palette_image(**info: object) -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([1, 0])
    image.info.update(info)
    return image


class TestModes:
    # Over white: 200 -> 200*128/255 + 127 = 227.4, 100 -> 177.2, 50 -> 152.1.
    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            (Image.new("1", (1, 1), 1), WHITE),
            (Image.new("L", (1, 1), 77), (77, 77, 77)),
            (palette_image(), (200, 100, 50)),
            (Image.new("RGB", (1, 1), (1, 2, 3)), (1, 2, 3)),
            (Image.new("RGBX", (1, 1), (1, 2, 3, 4)), (1, 2, 3)),
            (Image.new("CMYK", (1, 1), (255, 0, 0, 0)), (0, 255, 255)),
            (Image.new("CMYK", (1, 1), (0, 0, 0, 255)), (0, 0, 0)),
            (Image.new("YCbCr", (1, 1), (90, 128, 128)), (90, 90, 90)),
            (Image.new("HSV", (1, 1), (0, 255, 255)), (255, 0, 0)),
            (Image.new("RGBA", (1, 1), (200, 100, 50, 128)), (227, 177, 152)),
            (Image.new("RGBA", (1, 1), (200, 100, 50, 0)), WHITE),
            (Image.new("RGBA", (1, 1), (200, 100, 50, 255)), (200, 100, 50)),
            (Image.new("RGBa", (1, 1), (100, 50, 25, 128)), (227, 177, 152)),
            (Image.new("LA", (1, 1), (200, 128)), (227, 227, 227)),
            (Image.new("La", (1, 1), (100, 128)), (227, 227, 227)),
            (palette_image(transparency=1), WHITE),
            (palette_image(transparency=0), (200, 100, 50)),
            (palette_image(transparency=b"\xff\x80"), (227, 177, 152)),
        ],
        ids=lambda value: value.mode if isinstance(value, Image.Image) else "",
    )
    def test_pixel(self, image: Image.Image, expected: tuple[int, ...]) -> None:
        result = to_rgb(image)
        assert result.mode == "RGB"
        assert result.size == image.size
        np.testing.assert_allclose(result.getpixel((0, 0)), expected, atol=1)

    def test_lab(self) -> None:
        neutral = Image.new("LAB", (1, 1), (128, 128, 128))  # L* = 50.2
        np.testing.assert_allclose(pixel(neutral), (119, 119, 119), atol=2)

    def test_palette_with_alpha_band(self) -> None:
        image = Image.new("PA", (1, 1), (0, 128))
        image.putpalette([200, 100, 50])
        np.testing.assert_allclose(pixel(image), (227, 177, 152), atol=1)

    def test_palette_with_alpha_colours(self) -> None:
        image = Image.new("P", (1, 1))
        image.putpalette([200, 100, 50, 128], "RGBA")
        np.testing.assert_allclose(pixel(image), (227, 177, 152), atol=1)

    def test_transparent_colour_of_grey_and_rgb(self) -> None:
        grey = Image.fromarray(np.array([[7, 8]], np.uint8))
        grey.info["transparency"] = 7
        assert np.asarray(to_rgb(grey))[0].tolist() == [[255] * 3, [8] * 3]
        rgb = Image.fromarray(np.array([[[1, 2, 3], [1, 2, 4]]], np.uint8))
        rgb.info["transparency"] = (1, 2, 3)
        assert np.asarray(to_rgb(rgb))[0].tolist() == [[255] * 3, [1, 2, 4]]

    def test_transparent_colour_of_png_depths(self) -> None:
        # 4-bit grey 5 and 6; 16-bit grey 1000 and 1001; 16-bit RGB, only the high byte is kept.
        four = png(2, 1, 4, 0, b"\0\x56", tRNS=struct.pack(">H", 5))
        assert np.asarray(to_rgb(four))[0, :, 0].tolist() == [255, 6 * 17]
        sixteen = png(
            2,
            1,
            16,
            0,
            struct.pack(">BHH", 0, 1000, 1001),
            tRNS=struct.pack(">H", 1000),
        )
        assert np.asarray(to_rgb(sixteen))[0, :, 0].tolist() == [255, 4]
        colours = (0x1234, 0x5678, 0x9ABC, 0x2234, 0x5678, 0x9ABC)
        rgb = png(
            2,
            1,
            16,
            2,
            struct.pack(">B6H", 0, *colours),
            tRNS=struct.pack(">3H", *colours[:3]),
        )
        assert np.asarray(to_rgb(rgb))[0].tolist() == [[255] * 3, [0x22, 0x56, 0x9A]]

    @pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I"])
    def test_sixteen_bits_are_scaled(self, mode: str) -> None:
        values = [0, 128, 129, 257, 385, 386, 32896, 65406, 65407, 65535]
        dtype = {"I;16B": ">u2", "I": "<i4"}.get(mode, "<u2")
        image = Image.frombytes(mode, (len(values), 1), np.array(values, dtype).tobytes())
        got = np.asarray(to_rgb(image))[0]
        assert got[:, 0].tolist() == [0, 0, 1, 1, 1, 2, 128, 254, 255, 255]
        assert (got == got[:, :1]).all()

    @pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
    def test_sixteen_bit_files(self, file_format: str) -> None:
        image = Image.fromarray(np.array([[0, 257 * 99, 65535]], np.uint16))
        got = np.asarray(to_rgb(encoded(image, file_format)))
        assert got[0, :, 0].tolist() == [0, 99, 255]

    def test_float(self) -> None:
        image = Image.fromarray(np.array([[0, 0.5, 0.501, 1]], np.float32))
        assert np.asarray(to_rgb(image))[0, :, 0].tolist() == [0, 128, 128, 255]

    @pytest.mark.parametrize(
        ("mode", "value"),
        [("I", -1), ("I", 65536), ("F", -0.01), ("F", 1.01), ("F", np.nan)],
    )
    def test_outside_the_defined_range(self, mode: str, value: float) -> None:
        with pytest.raises(InputError, match="allowed are 0 to"):
            to_rgb(Image.new(mode, (2, 2), value))

    def test_first_frame(self) -> None:
        frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
        for file_format in ("GIF", "PNG", "TIFF"):
            data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:])
            assert to_rgb(data).getpixel((0, 0)) == (255, 0, 0)


class TestCmykProfiles:
    @staticmethod
    def profile() -> bytes:
        """The smallest CMYK profile: L* = 100 without ink, 0 with K, else 50 (lut8, 2**4 grid)."""
        identity = bytes(range(256))
        lightness = (0 if ink[3] else 128 if any(ink) else 255 for ink in np.ndindex(2, 2, 2, 2))
        grid = b"".join(bytes([value, 128, 128]) for value in lightness)
        matrix = struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 65536)
        lut = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + matrix + identity * 4 + grid + identity * 3
        header = struct.pack(
            ">I4sI4s4s4s12s4s28x3I", 144 + len(lut), b"lcms", 0x02400000, b"prtr", b"CMYK", b"Lab ",
            bytes(12), b"acsp", 0xF6D6, 0x10000, 0xD32D,
        ).ljust(128, b"\0")  # fmt: skip
        return header + struct.pack(">I4sII", 1, b"A2B0", 144, len(lut)) + lut

    def test_usable_profile(self) -> None:
        image = Image.new("CMYK", (2, 2), (255, 0, 0, 0))
        image.info["icc_profile"] = self.profile()
        np.testing.assert_allclose(pixel(image), (119, 119, 119), atol=3)
        assert pixel(image, reference_modes=True) == (0, 255, 255)

    @pytest.mark.parametrize("profile", [b"junk", None], ids=["junk", "of RGB"])
    def test_unusable_profile(self, profile: bytes | None) -> None:
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        image = Image.new("CMYK", (2, 2), (255, 0, 0, 0))
        image.info["icc_profile"] = profile or srgb
        assert pixel(image) == (0, 255, 255)


class TestOrientation:
    PIXELS = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    UPRIGHT = (
        PIXELS,
        PIXELS[:, ::-1],
        PIXELS[::-1, ::-1],
        PIXELS[::-1],
        PIXELS.transpose(1, 0, 2),
        np.rot90(PIXELS, -1),
        PIXELS[::-1, ::-1].transpose(1, 0, 2),
        np.rot90(PIXELS, 1),
    )

    @pytest.mark.parametrize("file_format", ["PNG", "WEBP", "TIFF"])
    @pytest.mark.parametrize("value", range(1, 9))
    def test_applied(self, value: int, file_format: str) -> None:
        exif = Image.Exif()
        exif[0x0112] = value
        data = encoded(Image.fromarray(self.PIXELS), file_format, exif=exif, lossless=True)
        np.testing.assert_array_equal(np.asarray(to_rgb(data)), self.UPRIGHT[value - 1])
        if file_format != "TIFF":  # Pillow turns TIFF while loading
            plain = to_rgb(data, reference_modes=True)
            np.testing.assert_array_equal(np.asarray(plain), self.PIXELS)

    @pytest.mark.parametrize("exif", [b"Exif\0\0junk", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b""])
    def test_damaged_exif_is_ignored(self, exif: bytes) -> None:
        data = encoded(Image.fromarray(self.PIXELS), "PNG", exif=exif)
        np.testing.assert_array_equal(np.asarray(to_rgb(data)), self.PIXELS)


def test_reference_modes_is_plain_convert() -> None:
    assert pixel(Image.new("RGBA", (1, 1), (9, 8, 7, 0)), reference_modes=True) == (
        9,
        8,
        7,
    )
    image = palette_image(transparency=b"\x00\x00")
    assert pixel(image, reference_modes=True) == (200, 100, 50)
    assert pixel(Image.new("I;16", (1, 1), 1000), reference_modes=True) == WHITE


class TestSources:
    PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)

    def check(self, source: object) -> None:
        np.testing.assert_array_equal(np.asarray(to_rgb(source)), self.PIXELS)

    def test_files(self, tmp_path: Path) -> None:
        path = tmp_path / "ünïcode picture"
        path.write_bytes(encoded(Image.fromarray(self.PIXELS)))
        data = path.read_bytes()
        for source in (path, str(path), data, bytearray(data), memoryview(data)):
            self.check(source)
        with path.open("rb") as file:
            file.seek(9)
            self.check(file)
            assert not file.closed
            self.check(file)

    def test_unseekable_file(self) -> None:
        read_end, write_end = os.pipe()
        with open(read_end, "rb") as reader, open(write_end, "wb") as writer:
            writer.write(encoded(Image.fromarray(self.PIXELS)))
            writer.close()
            self.check(reader)

    def test_arrays(self) -> None:
        self.check(self.PIXELS)
        self.check(self.PIXELS[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1])
        self.check(np.asfortranarray(self.PIXELS))
        padded = np.full((5, 14, 4), 255, np.uint8)
        padded[:, ::2, :3] = self.PIXELS
        self.check(padded[:, ::2])
        grey = self.PIXELS[:, :, 0]
        for array in (grey, grey[:, :, None]):
            got = np.asarray(to_rgb(array))
            np.testing.assert_array_equal(got, np.stack([grey] * 3, axis=2))
        transparent = np.dstack([self.PIXELS, np.zeros((5, 7), np.uint8)])
        assert (np.asarray(to_rgb(transparent)) == 255).all()

    def test_array_is_not_shared(self) -> None:
        array = self.PIXELS.copy()
        image = to_rgb(array)
        array[:] = 0
        np.testing.assert_array_equal(np.asarray(image), self.PIXELS)

    @pytest.mark.parametrize("info", [{"transparency": b"\x10\x20"}, {"transparency": 1}, {}])
    def test_callers_image_stays_as_it_was(self, info: dict[str, object]) -> None:
        image = palette_image(**info)
        before = (
            image.tobytes(),
            image.im.getpalettemode(),
            image.palette.tobytes(),
            image.info,
        )
        to_rgb(image)
        to_rgb(image, reference_modes=True)
        after = (
            image.tobytes(),
            image.im.getpalettemode(),
            image.palette.tobytes(),
            image.info,
        )
        assert after == before
        assert image.info == info

    def test_callers_open_image_stays_open(self, tmp_path: Path) -> None:
        frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
        frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
        with Image.open(tmp_path / "a.gif") as image:
            assert pixel(image) == (255, 0, 0)
            image.seek(1)
            assert pixel(image) == (0, 0, 255)

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
    def test_no_file_stays_open(self, tmp_path: Path) -> None:
        good, bad = tmp_path / "good.tiff", tmp_path / "bad.png"
        good.write_bytes(encoded(Image.fromarray(self.PIXELS), "TIFF"))
        bad.write_bytes(encoded(Image.fromarray(self.PIXELS))[:60])
        before = len(os.listdir("/proc/self/fd"))
        kept = [to_rgb(good) for _ in range(5)]
        for _ in range(5):
            with pytest.raises(InputError):
                to_rgb(bad)
        assert len(os.listdir("/proc/self/fd")) == before
        assert len(kept) == 5


class TestErrors:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (
                "no/such/file.png",
                "no/such/file.png: cannot open the file (No such file",
            ),
            ("nul\0byte.png", "cannot open the file"),
            (Path(), "Is a directory"),
            (b"", "no picture that Pillow knows"),
            (b"hello world, this is text", "no picture that Pillow knows"),
            (encoded(Image.new("RGB", (50, 50)))[:60], "cannot be read as a picture"),
            (Image.new("RGB", (0, 5)), "0x5 pixels, both sides must be at least 1"),
            (io.StringIO("text"), "cannot be read as a picture"),
            (np.zeros((0, 5, 3), np.uint8), "5x0 pixels"),
            (np.zeros((5, 0), np.uint8), "0x5 pixels"),
            (np.zeros((5, 5, 3), np.float32), "dtype float32, only uint8"),
            (np.zeros((5, 5, 3), np.uint16), "dtype uint16, only uint8"),
            (np.zeros((5, 5), bool), "dtype bool, only uint8"),
            (np.zeros((3, 50, 50), np.uint8), "the channels come last"),
            (np.zeros((5, 5, 2), np.uint8), "[h, w, 4]"),
            (np.zeros((1, 5, 5, 3), np.uint8), "several arrays go into a list"),
            (np.zeros(5, np.uint8), "[h, w]"),
            (None, "NoneType is no picture; a picture is a path"),
            (7, "int is no picture"),
        ],
        ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
    )
    def test_bad_source(self, source: object, message: str) -> None:
        with pytest.raises(InputError) as caught:
            to_rgb(source)
        assert message in str(caught.value)
        assert caught.value.index is None

    def test_closed_picture(self, tmp_path: Path) -> None:
        Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
        image = Image.open(tmp_path / "a.png")
        image.close()
        with pytest.raises(InputError):
            to_rgb(image)

    def test_eps_starts_no_ghostscript(self) -> None:
        with pytest.raises(InputError, match="Ghostscript and is not read"):
            to_rgb(encoded(Image.new("RGB", (4, 4)), "EPS"))

    def test_limit_is_checked_before_decoding(self) -> None:
        header_only = png(20, 20, 8, 2, b"")
        with pytest.raises(InputError, match=r"20x20 = 400 pixels.*max_image_pixels=399"):
            to_rgb(header_only, max_image_pixels=399)
        with pytest.raises(InputError, match="max_image_pixels=34"):
            to_rgb(np.zeros((5, 7), np.uint8), max_image_pixels=34)

    def test_bombs_raise_and_do_not_warn(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        data = encoded(Image.new("RGB", (10, 10)))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert to_rgb(data).size == (10, 10)
            assert pixel(palette_image(transparency=b"\x00"), reference_modes=True)
        assert caught == []
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
        with pytest.raises(InputError, match="MAX_IMAGE_PIXELS"):
            to_rgb(data)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("raised", "expected"),
        [
            (KeyboardInterrupt, KeyboardInterrupt),
            (MemoryError, OutOfMemoryError),
            (zlib.error, InputError),
            (struct.error, InputError),
            (IndexError, InputError),
            (OverflowError, InputError),
        ],
    )
    def test_any_exception_has_its_type(
        self, raised: type[BaseException], expected: type[BaseException]
    ) -> None:
        class Broken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise raised

        with pytest.raises(expected):
            to_rgb(Broken(b"x"))


class TestWarningFilters:
    def test_restored(self) -> None:
        before = list(warnings.filters)
        to_rgb(np.zeros((2, 2), np.uint8))
        with pytest.raises(JmmError):
            to_rgb(b"junk")
        assert list(warnings.filters) == before

    def test_restored_after_many_threads(self) -> None:
        before = list(warnings.filters)
        data = encoded(palette_image())
        threads = [
            threading.Thread(target=lambda: [to_rgb(data) for _ in range(50)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(warnings.filters) == before

    def test_reset_meanwhile(self) -> None:
        class Resetting(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                warnings.resetwarnings()
                return super().read(size)

        with warnings.catch_warnings():
            assert to_rgb(Resetting(encoded(palette_image()))).mode == "RGB"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.png", True),
        (Path("a.png"), True),
        (b"", True),
        (bytearray(), True),
        (memoryview(b""), True),
        (io.BytesIO(), True),
        (Image.new("L", (1, 1)), True),
        (np.zeros((2, 2)), True),
        (np.zeros((2, 2, 3)), True),
        (np.zeros((2, 2, 2, 3)), False),
        (np.array(["a.png", "b.png"]), False),
        ([], False),
        (["a.png"], False),
        (("a.png",), False),
        (None, False),
        (7, False),
    ],
)
def test_is_image(source: object, expected: bool) -> None:
    assert is_image(source) is expected
    if isinstance(source, str):
        assert not is_image(source, str_is_path=False)
