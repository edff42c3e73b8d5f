"""What the user passed, read within the limits."""

from __future__ import annotations

import math
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image

from jmm.errors import InputError
from jmm.images.modes import flatten, transparency, upright
from jmm.images.quiet import pillow

if TYPE_CHECKING:
    import numpy.typing as npt

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image"
    " | npt.NDArray[np.uint8]"
)

MAX_IMAGE_PIXELS = 178_956_970
"""Default of ``max_image_pixels``: where Pillow itself raises DecompressionBombError."""

# Pillow decodes some formats in Python, at seconds per million pixels.
MAX_PYTHON_PIXELS = 2**22

# A TIFF may ask for one tile far larger than its picture.
MAX_TILE_PIXELS = 2**24
_TILE_SIDES = (322, 323)

_ALLOWED = (
    "a picture is a path, bytes, a binary file object, a PIL.Image or a uint8 array [h, w], "
    "[h, w, 1], [h, w, 3] or [h, w, 4]"
)
_REFUSED = {
    "EPS": "would start Ghostscript",
    "IPTC": "may hold any other file, one that starts a program too,",
}


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
        source: The path of a regular file, the bytes of a file, a binary file object (read from
            its start and left open), a PIL.Image (its current frame; left open and as it was, apart
            from being loaded), or a uint8 array [h, w], [h, w, 1], [h, w, 3] or [h, w, 4] with any
            strides. Of a file with several frames, the first.
        reference_modes: True converts by ``Image.convert("RGB")`` alone: alpha dropped, EXIF
            orientation ignored, 16 bits clipped.
        max_image_pixels: Greatest width * height, checked before a file's pixels are decoded.
            Pillow refuses more than twice PIL.Image.MAX_IMAGE_PIXELS by itself, so a
            greater limit here needs that one raised too.

    Returns:
        A picture of mode RGB. A PIL.Image that is RGB and upright comes back as it is:
        do not write into it.

    Raises:
        InputError: The file is missing, unreadable, damaged, cut short or too large, or would
            start a program; the picture has no pixels or masked ones; the type, dtype or shape is
            none of the above.
        OutOfMemoryError: There is no memory for the decoded picture.
    """
    if isinstance(source, np.ndarray):
        image, name = _from_array(source, max_image_pixels)
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
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise InputError(
                f"{name}: a pipe, a socket or a device, which may keep the reader waiting; read "
                "it and pass the bytes"
            )
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{name}: cannot open the file ({reason}); give the path of a readable picture file"
        ) from error


def _decode(
    file: IO[bytes], name: str, reference_modes: bool, max_image_pixels: int
) -> Image.Image:
    with pillow(name):
        image = Image.open(file)
        _check_size(image.width, image.height, name, max_image_pixels)
        if image.format == "TIFF" and not isinstance(file, BytesIO):
            # libtiff maps it
            file.seek(0)
            image = Image.open(BytesIO(file.read()))
    return _convert(image, name, reference_modes, max_image_pixels)


def _from_array(source: npt.NDArray[Any], max_image_pixels: int) -> tuple[Image.Image, str]:
    # A subclass may have methods of its own; what lies in memory is the picture.
    array = np.asarray(source)
    name = f"array of shape {list(array.shape)}"
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
    if isinstance(source, np.ma.MaskedArray) and np.ma.is_masked(source):
        raise InputError(f"{name} has masked values; give them a colour with .filled()")
    _check_size(array.shape[1], array.shape[0], name, max_image_pixels)
    with pillow(name):
        return Image.fromarray(array), name


def _check_size(width: int, height: int, name: str, max_image_pixels: int) -> None:
    if width < 1 or height < 1:
        raise InputError(f"{name}: {width}x{height} pixels, both sides must be at least 1")
    if width * height > max_image_pixels:
        raise InputError(
            f"{name}: {width}x{height} = {width * height} pixels, the limit is "
            f"max_image_pixels={max_image_pixels}; scale the picture down or raise the limit"
        )


def _check_decoder(image: Image.Image, name: str) -> None:
    tiles = getattr(image, "tile", None) or ()
    if tiles and image.format in _REFUSED:
        raise InputError(
            f"{name}: {image.format} {_REFUSED[image.format]} and is not read; "
            "give a rendered picture"
        )
    in_python = any(tile[0] in Image.DECODERS for tile in tiles)
    if in_python and image.width * image.height > MAX_PYTHON_PIXELS:
        raise InputError(
            f"{name}: {image.width}x{image.height} pixels of {image.format}, which Pillow decodes "
            f"slowly, in Python; the limit is {MAX_PYTHON_PIXELS}: convert it to PNG"
        )
    tags = getattr(image, "tag_v2", {})
    tile_pixels = math.prod(tags.get(side, 1) for side in _TILE_SIDES)
    if tile_pixels > max(MAX_TILE_PIXELS, 2 * image.width * image.height):
        raise InputError(
            f"{name}: {image.width}x{image.height} pixels in tiles of {tile_pixels}; the limit is "
            f"{MAX_TILE_PIXELS}, or twice the picture"
        )


def _convert(
    image: Image.Image, name: str, reference_modes: bool, max_image_pixels: int
) -> Image.Image:
    _check_size(image.width, image.height, name, max_image_pixels)
    with pillow(name):
        _check_decoder(image, name)
        transparent = transparency(image)
        image.load()
        # an icon may have a picture inside of another size than it says
        _check_size(image.width, image.height, name, max_image_pixels)
        if reference_modes:
            return image if image.mode == "RGB" else image.convert("RGB")
        return upright(flatten(image, name, transparent), image)
