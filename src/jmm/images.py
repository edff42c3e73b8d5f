"""Whatever the user passed, as an RGB picture.

    image = to_rgb("photo.jpg")        # path, bytes, binary file, PIL.Image or uint8 array
    image.mode                         # "RGB", upright, without alpha

What each mode becomes:

====================  ================================================================
alpha, tRNS           composited on white (RGBA, LA, PA, RGBa, La, palettes with
                      transparency, a transparent colour of a grey or RGB PNG)
I;16 and relatives    value / 257, rounded
I                     as 16 bits: values in [0, 65535] / 257; others are refused
F                     values in [0, 1] * 255, rounded; others are refused
CMYK                  through the embedded ICC profile to sRGB if it is usable, else
                      Pillow's plain conversion
1, L, P, RGBX,        Pillow's conversion; ICC profiles of RGB and grey pictures are
YCbCr, LAB, HSV       ignored, as the reference does
====================  ================================================================

Pillow keeps only the high byte of 16-bit RGB, so such a picture may be one step of 255
darker than its value / 257.
"""

from __future__ import annotations

import os
import re
import struct
import warnings
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from PIL import Image, ImageCms, UnidentifiedImageError

from jmm.errors import InputError, JmmError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image"
    " | npt.NDArray[np.uint8]"
)

MAX_IMAGE_PIXELS = 178_956_970
"""Default of ``max_image_pixels``: where Pillow itself raises DecompressionBombError."""

_ALLOWED = (
    "a picture is a path, bytes, a binary file object, a PIL.Image or a uint8 array [h, w], "
    "[h, w, 1], [h, w, 3] or [h, w, 4]"
)
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
_PILLOW_WARNINGS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def is_image(source: object, *, str_is_path: bool = True) -> bool:
    """Whether ``source`` is one picture by its type: not a text, not a sequence of pictures.

    Args:
        source: Anything. An array counts as one picture if it has 2 or 3 axes; with 4 it
            is a sequence of pictures.
        str_is_path: Whether a str names a file, or is a text (then False is returned).

    Returns:
        True for what :func:`to_rgb` tries to read; the content is not looked at.
    """
    if isinstance(source, str):
        return str_is_path
    if isinstance(source, np.ndarray):
        return source.ndim in (2, 3) and source.dtype != object
    return isinstance(
        source, os.PathLike | bytes | bytearray | memoryview | Image.Image
    ) or hasattr(source, "read")


def to_rgb(
    source: ImageSource,
    *,
    reference_modes: bool = False,
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> Image.Image:
    """Read one picture and bring it to upright RGB.

    Args:
        source: A path, the bytes of a file, a binary file object (read from its start and
            left open), a PIL.Image (its current frame; left open and as it was, apart from
            being loaded), or a uint8 array [h, w], [h, w, 1], [h, w, 3] or [h, w, 4] with
            any strides. Of a file with several frames, the first.
        reference_modes: True converts by ``Image.convert("RGB")`` alone: alpha dropped, EXIF
            orientation ignored, 16 bits clipped.
        max_image_pixels: Greatest width * height, checked before a file's pixels are decoded.
            Pillow refuses more than twice PIL.Image.MAX_IMAGE_PIXELS by itself, so a
            greater limit here needs that one raised too.

    Returns:
        A picture of mode RGB. A PIL.Image that is RGB and upright comes back as it is:
        do not write into it.

    Raises:
        InputError: The file is missing, unreadable, damaged, cut short or too large; the
            picture has no pixels; the type, dtype or shape is none of the above.
        OutOfMemoryError: There is no memory for the decoded picture.
    """
    if isinstance(source, np.ndarray):
        name = f"array of shape {list(source.shape)}"
        image = _from_array(source, name, max_image_pixels)
        return _convert(image, name, reference_modes, max_image_pixels)
    if isinstance(source, Image.Image):
        name = f"PIL.Image of mode {source.mode}"
        return _convert(source, name, reference_modes, max_image_pixels)
    if isinstance(source, str | os.PathLike):
        try:
            name = os.fsdecode(source)
        except Exception as error:
            raise InputError(f"{type(source).__name__} gives no path: {error}") from None
        with _open_file(source, name) as file:
            return _decode(file, name, reference_modes, max_image_pixels)
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        name = f"picture of {len(data)} bytes"
        return _decode(BytesIO(data), name, reference_modes, max_image_pixels)
    if hasattr(source, "read"):
        name = f"file object {getattr(source, 'name', type(source).__name__)}"
        return _decode(source, name, reference_modes, max_image_pixels)
    raise InputError(f"{type(source).__name__} is no picture; {_ALLOWED}")


def _open_file(path: str | os.PathLike[str], name: str) -> IO[bytes]:
    # Pillow maps files that it opens by name, and a mapped file that shrinks kills the process.
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{name}: cannot open the file ({reason}); give the path of a readable picture file"
        ) from error


def _decode(
    file: IO[bytes], name: str, reference_modes: bool, max_image_pixels: int
) -> Image.Image:
    with _pillow(name):
        image = Image.open(file)
    return _convert(image, name, reference_modes, max_image_pixels)


def _from_array(array: npt.NDArray[Any], name: str, max_image_pixels: int) -> Image.Image:
    if array.dtype != np.uint8:
        raise InputError(
            f"{name} has dtype {array.dtype}, only uint8 is taken; scale to 0..255 and "
            "use .astype(numpy.uint8)"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (3, 4)):
        raise InputError(
            f"{name} is none of [h, w], [h, w, 1], [h, w, 3], [h, w, 4]; "
            "the channels come last, and several arrays go into a list"
        )
    _check_size(array.shape[1], array.shape[0], name, max_image_pixels)
    with _pillow(name):
        return Image.fromarray(array)


def _check_size(width: int, height: int, name: str, max_image_pixels: int) -> None:
    if width < 1 or height < 1:
        raise InputError(f"{name}: {width}x{height} pixels, both sides must be at least 1")
    if width * height > max_image_pixels:
        raise InputError(
            f"{name}: {width}x{height} = {width * height} pixels, the limit is "
            f"max_image_pixels={max_image_pixels}; scale the picture down or raise the limit"
        )


@contextmanager
def _pillow(name: str) -> Iterator[None]:
    """Turn what Pillow raises on junk, which may be any exception, into our errors.

    Pillow's warnings are silenced. warnings.catch_warnings would swap the process's filters
    under other threads and forget which warnings were shown; one entry put in front and taken
    away again does neither.
    """
    filters = cast("list[Any]", warnings.filters)
    filters.insert(0, _PILLOW_WARNINGS)
    try:
        yield
    except JmmError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{name}: no memory for the decoded picture") from error
    except Image.DecompressionBombError as error:
        raise InputError(
            f"{name}: {error} Scale the picture down, or raise PIL.Image.MAX_IMAGE_PIXELS"
        ) from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name}: no picture that Pillow knows; give a PNG, JPEG, WebP, TIFF or the like"
        ) from error
    except Exception as error:
        raise InputError(
            f"{name}: cannot be read as a picture ({type(error).__name__}: {error}); "
            "give a complete file in a format that Pillow reads"
        ) from error
    finally:
        with suppress(ValueError):
            filters.remove(_PILLOW_WARNINGS)


def _convert(
    image: Image.Image, name: str, reference_modes: bool, max_image_pixels: int
) -> Image.Image:
    _check_size(image.width, image.height, name, max_image_pixels)
    if image.format == "EPS" and getattr(image, "tile", None):
        raise InputError(
            f"{name}: EPS would start Ghostscript and is not read; give a rendered picture"
        )
    with _pillow(name):
        transparency = _transparency(image)
        image.load()
        if reference_modes:
            return image if image.mode == "RGB" else image.convert("RGB")
        method = _UPRIGHT.get(_orientation(image))
        rgb = _flatten(image, name, transparency)
        return rgb if method is None else rgb.transpose(method)


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


def _transparency(image: Image.Image) -> bytes | int | tuple[int, ...] | None:
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


def _flatten(
    image: Image.Image, name: str, transparency: bytes | int | tuple[int, ...] | None
) -> Image.Image:
    mode = image.mode
    if mode == "RGB" and transparency is None:
        return image
    if mode == "F":
        values = np.asarray(image)
        _check_range(values, 1, name)
        return Image.fromarray(np.rint(values * 255).astype(np.uint8)).convert("RGB")
    if mode == "I" or mode.startswith("I;16"):
        values = np.asarray(image)
        _check_range(values, 65535, name)
        grey = _SIXTEEN_TO_EIGHT[values]
        if transparency is not None:
            grey[values == transparency] = 255
        return Image.fromarray(grey).convert("RGB")
    if transparency is not None:
        # A copy, because Pillow writes the transparency into the palette that it converts.
        image = image.copy()
        image.info["transparency"] = transparency
        return _on_white(image)
    if mode == "La":
        return _on_white(image.convert("LA"))
    if mode in _ALPHA_MODES or (image.palette is not None and image.palette.mode == "RGBA"):
        return _on_white(image)
    if mode == "CMYK" and image.info.get("icc_profile"):
        return _from_cmyk_profile(image)
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    rgba = image.convert("RGBA")
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, rgba).convert("RGB")


def _check_range(values: npt.NDArray[Any], high: int, name: str) -> None:
    low_found, high_found = values.min(), values.max()
    if not (low_found >= 0 and high_found <= high):
        raise InputError(
            f"{name}: values from {low_found} to {high_found}, allowed are 0 to {high}; "
            "scale it and convert it to mode L or RGB"
        )


def _from_cmyk_profile(image: Image.Image) -> Image.Image:
    try:
        profile = ImageCms.ImageCmsProfile(BytesIO(image.info["icc_profile"]))
        srgb = ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB")
    except (ImportError, OSError, TypeError, ValueError, ImageCms.PyCMSError):
        converted = None
    return image.convert("RGB") if converted is None else converted
