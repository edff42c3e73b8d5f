"""Pictures that try a reader, and their pixels by Pillow's plain calls and numpy.

Example:
    >>> expected(encoded(Image.new("L", (1, 1), 7))).tolist()
    [[[7, 7, 7]]]
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

_PLAIN = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_WRITTEN = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("1", "L", "P", "RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "F"),
    "BMP": ("1", "L", "P", "RGB", "RGBA"),
    "TGA": ("1", "L", "LA", "P", "RGB", "RGBA"),
    "PPM": ("1", "L", "RGB", "I;16"),
    "JPEG2000": ("L", "LA", "RGB", "RGBA"),
    "ICO": ("RGBA",),
    "PCX": ("1", "L", "P", "RGB"),
    "SGI": ("L", "RGB", "RGBA"),
}
# Adam7 of the PNG specification: first pixel and step in x and y of each pass.
_ADAM7 = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)
)  # fmt: skip


def encoded(image: Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def noise(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Seeded pixels over the whole range of a mode, in blocks of 5 pixels."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (height // 5 + 1, width // 5 + 1, 4), dtype=np.uint8)
    pixels = blocks.repeat(5, axis=0).repeat(5, axis=1)[:height, :width]
    if mode == "I;16":
        return Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 256 + pixels[:, :, 1])
    if mode == "I":
        return noise(width, height, "I;16", seed).convert("I")
    if mode == "F":
        return Image.fromarray(pixels[:, :, 0].astype(np.float32) / 255)
    if mode in ("RGBA", "LA"):
        return Image.fromarray(pixels, "RGBA").convert(mode)
    if mode == "LAB":
        return Image.merge("LAB", Image.fromarray(pixels[:, :, :3]).split())
    return Image.fromarray(pixels[:, :, :3]).convert(mode)


def files(width: int, height: int) -> Iterator[tuple[str, bytes]]:
    """One file of each format and mode that Pillow writes, named."""
    for file_format, modes in _WRITTEN.items():
        for mode in modes:
            yield f"{file_format} {mode}", encoded(noise(width, height, mode), file_format)
    yield "PNG interlaced", interlaced(np.asarray(noise(width, height)))
    yield "JPEG progressive", encoded(noise(width, height), "JPEG", progressive=True)
    frames = [noise(width, height, seed=seed) for seed in (1, 2)]
    for file_format in ("GIF", "PNG", "TIFF", "WEBP"):
        options = {"save_all": True, "append_images": frames}
        yield f"{file_format} animated", encoded(noise(width, height), file_format, **options)
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        options = {"compression": compression}
        yield f"TIFF {compression}", encoded(noise(width, height), "TIFF", **options)


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *, passes: int = 0) -> bytes:
    """A PNG by hand; rows begin with the type of their filter."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, passes)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def interlaced(pixels: NDArray[np.uint8]) -> bytes:
    """An RGB picture as an interlaced PNG, which Pillow does not write."""
    parts = (pixels[y::dy, x::dx] for x, y, dx, dy in _ADAM7)
    rows = b"".join(b"\0" + row.tobytes() for part in parts if part.size for row in part)
    return png(pixels.shape[1], pixels.shape[0], 8, 2, rows, passes=1)


def tiled_tiff(width: int, height: int, tile: int, content: bytes) -> bytes:
    """A grey TIFF of one deflated tile, by hand."""
    data = zlib.compress(content)
    tags = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile}
    tags |= {324: 8 + 2 + 12 * 10 + 4, 325: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


def iptc(content: bytes, width: int, height: int) -> bytes:
    """An IPTC picture that holds any file."""

    def field(record: int, number: int, data: bytes) -> bytes:
        return struct.pack(">BBBH", 0x1C, record, number, len(data)) + data

    head = ((60, b"\x01\0"), (20, struct.pack(">H", width)), (30, struct.pack(">H", height)))
    fields = b"".join(field(3, number, data) for number, data in head)
    return fields + field(3, 120, b"\x05") + field(8, 10, content)


def expected(source: bytes | Path) -> NDArray[np.uint8]:
    """Upright RGB of a picture, by the rules in `jmm.images`; alpha may be off by one step.

    Raises:
        Exception: Pillow cannot read it.
        ValueError: Numbers are out of the range that the rules define.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _expected(io.BytesIO(source) if isinstance(source, bytes) else source)


def _expected(source: IO[bytes] | Path) -> NDArray[np.uint8]:
    image = Image.open(source)
    transparent = image.info.get("transparency")
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        return _grey(np.asarray(image, np.float64) * 255, 255)
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64)
        return _grey(np.where(values == transparent, 65535, values) / 257, 255)
    if image.mode == "CMYK" and image.info.get("icc_profile"):
        return _through_profile(image)
    if has_alpha(image) or transparent is not None:
        rgba = np.asarray(image.convert("RGBA"), np.float64)
        alpha = rgba[:, :, 3:] / 255
        return np.rint(rgba[:, :, :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    if image.mode not in _PLAIN:
        raise ValueError(f"no rule for mode {image.mode}")
    return np.asarray(image.convert("RGB"))


def format_of(file: IO[bytes]) -> str | None:
    """Pillow's name of the format."""
    with Image.open(file) as image:
        return image.format


def _through_profile(image: Image.Image) -> NDArray[np.uint8]:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
        srgb = ImageCms.createProfile("sRGB")
        return np.asarray(ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB"))
    except (OSError, ImageCms.PyCMSError):
        return np.asarray(image.convert("RGB"))


def has_alpha(image: Image.Image) -> bool:
    """Whether the mode or the palette has transparency."""
    colours = image.palette is not None and image.palette.mode == "RGBA"
    return image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or colours


def _grey(values: NDArray[np.float64], high: int) -> NDArray[np.uint8]:
    if not (values.min() >= 0 and values.max() <= high):
        raise ValueError("out of range")
    return np.repeat(np.rint(values).astype(np.uint8)[:, :, None], 3, axis=2)
