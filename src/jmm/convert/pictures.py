"""How a checkpoint's pictures are prepared: preprocessor_config.json, checked.

Source: transformers' ``Qwen2VLImageProcessor`` (defaults), and its ``get_image_processor_dict``: of
processor_config.json and preprocessor_config.json the first counts where it tells of pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jmm.convert.json_file import Section, is_number, read
from jmm.errors import ModelLoadError
from jmm.gguf_header import MERGE_SIZE, is_moderate

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("preprocessor_config.json", "processor_config.json")
_PLAIN, _NESTED = FILES
_NESTED_KEY = "image_processor"
_CHANNELS = 3
_BICUBIC = 3
_PATCH_SIZE = 14
_TYPES = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")
_STEPS: dict[str, object] = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_convert_rgb": True,
    "do_center_crop": False,
    "do_pad": False,
    "resample": _BICUBIC,
    "temporal_patch_size": 2,
    "merge_size": MERGE_SIZE,
}


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
        values.only(key, needed)
    values.only("patch_size", patch_size)
    if values.values.get("patch_size") is None and patch_size != _PATCH_SIZE:
        raise values.fail("patch_size", f"{patch_size} is needed, as in config.json")
    factor = values.values.get("rescale_factor")
    if factor is not None and not (is_number(factor) and abs(255 * factor - 1) < 1e-6):
        raise values.fail("rescale_factor", "1/255 is supported")
    kind = values.values.get("image_processor_type")
    if kind is not None and not str(kind).startswith(_TYPES):
        raise values.fail("image_processor_type", "that of Qwen2-VL is supported")
    least, most = _limits(values)
    if least is not None and most is not None and most < least:
        raise ModelLoadError(f"{values.path}: max_pixels is {most}, below min_pixels, {least}")
    return PictureConfig(
        _three(values, "image_mean", positive=False),
        _three(values, "image_std", positive=True),
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
    size = values.values.get("size")
    if size is not None and not isinstance(size, dict):
        raise values.fail("size", "an object with shortest_edge and longest_edge is needed")
    named: dict[str, Any] = size or {}
    limits: list[int | None] = []
    for key, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        if values.values.get(key) is not None:
            limits.append(values.whole(key))
        elif named.get(edge) is not None:
            limits.append(Section(values.path, named, f"{values.prefix}size.").whole(edge))
        else:
            limits.append(None)
    if unknown := set(named) - {"shortest_edge", "longest_edge", "min_pixels", "max_pixels"}:
        raise values.fail("size", f"{min(unknown)} is not supported")
    return limits[0], limits[1]


def _three(values: Section, key: str, *, positive: bool) -> list[float]:
    found = values.values.get(key)
    numbers = found if isinstance(found, list) and all(map(is_number, found)) else []
    sized = all(map(is_moderate, numbers))
    if len(numbers) != _CHANNELS or not sized or (positive and min(numbers) <= 0):
        above = " above 0" if positive else ""
        raise values.fail(key, f"three numbers{above}, of a size from 1e-6 to 1e6, are needed")
    return [float(n) for n in numbers]
