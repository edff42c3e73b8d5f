"""How a checkpoint's pictures are prepared: preprocessor_config.json, checked.

Source: transformers' ``Qwen2VLImageProcessor`` (defaults; null is no default: a step is left
out), and its ``get_image_processor_dict``: of
processor_config.json and preprocessor_config.json the first counts where it tells of pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmm import preprocess
from jmm.convert.json_file import Section, is_number, read
from jmm.errors import ModelLoadError
from jmm.gguf_header import MERGE_SIZE, is_moderate

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("preprocessor_config.json", "processor_config.json")
_PLAIN, _NESTED = FILES
_NESTED_KEY = "image_processor"
_CHANNELS = 3
_EDGES = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
_BICUBIC = 3
_PATCH_SIZE = 14
_TYPES = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")
_STEPS: dict[str, object] = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_convert_rgb": True,
    "resample": _BICUBIC,
    "temporal_patch_size": 2,
    "merge_size": MERGE_SIZE,
}
_NO_STEPS = ("do_center_crop", "do_pad")


@dataclass(frozen=True)
class PictureConfig:
    """How pictures are prepared; the limits are areas in pixels, None where none is given."""

    image_mean: list[float]
    image_std: list[float]
    min_pixels: int | None
    max_pixels: int | None


def has_pictures(folder: Path) -> bool:
    """Whether `read_pictures` finds a file there."""
    return any((folder / name).exists() for name in FILES)


def read_pictures(folder: Path, patch_size: int) -> PictureConfig:
    """Reads processor_config.json or preprocessor_config.json.

    Args:
        folder: The checkpoint.
        patch_size: Pixels per side of the tower's patches.

    Raises:
        ModelLoadError: Neither is there, a value cannot be used, or pictures would be prepared
            otherwise than jmm prepares them.
    """
    values = _section(folder)
    for key, needed in _STEPS.items():
        values.only(key, needed, takes_null=False)
    for key in _NO_STEPS:
        values.only(key, False)
    if values.whole("patch_size", _PATCH_SIZE) != patch_size:
        raise values.fail("patch_size", f"{patch_size} is needed, as in config.json")
    factor = values.values.get("rescale_factor", 1 / 255)
    if not is_number(factor) or abs(255 * factor - 1) >= 1e-6:
        raise values.fail("rescale_factor", "1/255 is supported")
    kind = values.values.get("image_processor_type")
    if kind is not None and not str(kind).startswith(_TYPES):
        raise values.fail("image_processor_type", "that of Qwen2-VL is supported")
    least, most = _limits(values)
    if least is not None and most is not None and most < least:
        raise ModelLoadError(f"{values.path}: max_pixels is {most}, below min_pixels, {least}")
    return PictureConfig(
        _three(values, "image_mean", preprocess.CLIP_MEAN, positive=False),
        _three(values, "image_std", preprocess.CLIP_STD, positive=True),
        least,
        most,
    )


def _section(folder: Path) -> Section:
    path = folder / _NESTED
    if path.exists():
        whole = Section(path, read(path))
        if _NESTED_KEY in whole.values or not (folder / _PLAIN).exists():
            return whole.section(_NESTED_KEY)
    return Section(folder / _PLAIN, read(folder / _PLAIN))


def _limits(values: Section) -> tuple[int | None, int | None]:
    """Both limits: of their own names, else of the edges; the defaults if there is neither."""
    given = values.values.get("size") is not None
    size = values.section("size") if given else Section(values.path, {}, f"{values.prefix}size.")
    if unknown := set(size.values) - {*_EDGES, *_EDGES.values()}:
        raise values.fail("size", f"{min(unknown)} is not supported")
    limits: dict[str, int | None] = {}
    for key, edge in _EDGES.items():
        if values.values.get(key) is not None:
            limits[key] = values.whole(key)
        else:
            limits[key] = size.whole(edge) if given else None
    return limits["min_pixels"], limits["max_pixels"]


def _three(values: Section, key: str, default: tuple[float, ...], *, positive: bool) -> list[float]:
    found = values.values.get(key, list(default))
    numbers = found if isinstance(found, list) and all(map(is_number, found)) else []
    sized = all(map(is_moderate, numbers))
    if len(numbers) != _CHANNELS or not sized or (positive and min(numbers) <= 0):
        above = " above 0" if positive else ""
        raise values.fail(key, f"three numbers{above}, of a size from 1e-6 to 1e6, are needed")
    return [float(n) for n in numbers]
