"""Any mode of Pillow to upright RGB.

A few rows at a time, so that beside the picture and its result nothing of their size is there.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageCms

from jmm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Transparency: TypeAlias = "bytes | int | tuple[int, ...] | None"

_STRIP_PIXELS = 2**18
_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_SIXTEEN_TO_EIGHT = ((np.arange(65536, dtype=np.uint32) + 128) // 257).astype(np.uint8)


def transparency(image: Image.Image) -> Transparency:
    """The transparent colour in the units of Pillow's pixels; call it before loading.

    A PNG states it at the file's depth, while Pillow scales the pixels to 8 bits.
    """
    value = image.info.get("transparency")
    tile = getattr(image, "tile", None)
    raw_mode = tile[0][3] if tile else None
    if image.mode == "P":
        return value if isinstance(value, bytes | int) else None
    if image.mode == "RGB" and isinstance(value, tuple) and len(value) == 3:
        return tuple(part >> 8 for part in value) if raw_mode == "RGB;16B" else value
    if image.mode in ("1", "L") or image.mode.startswith("I;16"):
        scale = {"L;2": 85, "L;4": 17}.get(raw_mode, 1) if isinstance(raw_mode, str) else 1
        return value * scale if isinstance(value, int) else None
    return None


def upright(image: Image.Image, source: Image.Image) -> Image.Image:
    """``image`` turned as the EXIF data of ``source`` ask."""
    method = _UPRIGHT.get(_orientation(source))
    return image if method is None else image.transpose(method)


def _orientation(image: Image.Image) -> int:
    # Damaged EXIF says nothing about the pixels: such a picture is taken as it lies.
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except (
        ArithmeticError,
        LookupError,
        OSError,
        SyntaxError,
        TypeError,
        ValueError,
        struct.error,
    ):
        return 1


def flatten(image: Image.Image, name: str, transparent: Transparency) -> Image.Image:
    """``image`` in mode RGB, on white.

    Args:
        image: Loaded; only read.
        name: For errors.
        transparent: From `transparency`.

    Raises:
        InputError: Values of mode I or F are out of their range.
    """
    mode = image.mode
    if mode == "RGB" and transparent is None:
        return image
    if mode == "F":
        _check_range(image, 1, name)
        return _by_strips(image, _from_unit_interval)
    if mode == "I" or mode.startswith("I;16"):
        if mode == "I":
            _check_range(image, 65535, name)
        return _by_strips(image, lambda strip: _from_sixteen_bits(strip, transparent))
    if transparent is not None or mode in _ALPHA_MODES or _has_alpha_colours(image):
        return _by_strips(image, lambda strip: _on_white(strip, transparent))
    if mode == "CMYK" and image.info.get("icc_profile"):
        return _from_cmyk_profile(image)
    return image.convert("RGB")


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Copies of rows, and where they begin."""
    n_rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, n_rows):
        yield top, image.crop((0, top, image.width, min(top + n_rows, image.height)))


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    rgb = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        rgb.paste(convert(strip), (0, top))
    return rgb


def _check_range(image: Image.Image, high: int, name: str) -> None:
    arrays = (np.asarray(strip) for _, strip in _strips(image))
    ends = np.array([(values.min(), values.max()) for values in arrays])
    low_found, high_found = ends[:, 0].min(), ends[:, 1].max()
    if not (low_found >= 0 and high_found <= high):
        raise InputError(
            f"{name}: values from {low_found} to {high_found}, allowed are 0 to {high}; "
            "scale it and convert it to mode L or RGB"
        )


def _from_unit_interval(strip: Image.Image) -> Image.Image:
    grey = np.rint(np.asarray(strip) * 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _from_sixteen_bits(strip: Image.Image, transparent: Transparency) -> Image.Image:
    values = np.asarray(strip)
    grey = _SIXTEEN_TO_EIGHT[values]
    if transparent is not None:
        grey[values == transparent] = 255
    return Image.fromarray(grey).convert("RGB")


def _has_alpha_colours(image: Image.Image) -> bool:
    return image.palette is not None and image.palette.mode == "RGBA"


def _on_white(strip: Image.Image, transparent: Transparency) -> Image.Image:
    if transparent is not None:
        strip.info["transparency"] = transparent
    rgba = strip.convert("LA").convert("RGBA") if strip.mode == "La" else strip.convert("RGBA")
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, rgba).convert("RGB")


def _from_cmyk_profile(image: Image.Image) -> Image.Image:
    try:
        transform = ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(BytesIO(image.info["icc_profile"])),
            ImageCms.createProfile("sRGB"),
            "CMYK",
            "RGB",
        )
        return _by_strips(image, transform.apply)
    except (ImportError, OSError, TypeError, ValueError, ImageCms.PyCMSError):
        return image.convert("RGB")
