"""How a model's pictures are cut, settled once from arguments, profile and file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from jmm import arguments, preprocess
from jmm.errors import InputError
from jmm.gguf_header import MERGE_SIZE
from jmm.tiles import TileProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from jmm.profiles import Profile

# Defaults of transformers' Qwen2VLImageProcessor.
MIN_PIXELS = 56 * 56
MAX_PIXELS = 28 * 28 * 1280

_PATCHES_PER_TOKEN = 4


@dataclass(frozen=True)
class Processor:
    """Turns RGB pictures into the patches that one model takes.

    Attributes:
        min_pixels: Least area after resizing.
        max_pixels: Greatest area after resizing.
        patch_size: Pixels per side of a patch.
        image_mean: Per channel, of values in [0, 1].
        image_std: Per channel, of values in [0, 1].
        reason: Where the two limits come from.
        first_pixels: Least and greatest area of a resize that comes before; None without one.
    """

    min_pixels: int
    max_pixels: int
    patch_size: int
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    reason: str
    first_pixels: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        metadata: Mapping[str, Any],
        profile: Profile,
        min_pixels: int | None,
        max_pixels: int | None,
    ) -> Processor | TileProcessor:
        """Settles the values: an argument wins over the profile, that over the mmproj file.

        A tower of tiles has a processor of its own, and no limits.

        Args:
            metadata: Of the mmproj file, empty without one.
            profile: The model family.
            min_pixels: What the caller asked for, or None.
            max_pixels: What the caller asked for, or None.

        Raises:
            InputError: The limits are no whole numbers above 0, or cross, or the tower has none.
        """
        tiles = TileProcessor.of(metadata)
        if tiles is not None:
            limit = max_pixels if min_pixels is None else min_pixels
            return tiles if limit is None else tiles.limited(limit)
        least, least_reason = _settle("min_pixels", min_pixels, profile, metadata, MIN_PIXELS)
        most, most_reason = _settle("max_pixels", max_pixels, profile, metadata, MAX_PIXELS)
        if least > most:
            raise InputError(f"min_pixels={least} is above max_pixels={most}")
        return cls(
            least,
            most,
            metadata.get("clip.vision.patch_size", 14),
            tuple(metadata.get("clip.vision.image_mean", preprocess.CLIP_MEAN)),
            tuple(metadata.get("clip.vision.image_std", preprocess.CLIP_STD)),
            f"min_pixels: {least_reason}; max_pixels: {most_reason}",
            profile.first_pixels,
        )

    def limited(self, max_pixels: int) -> Processor:
        """The same with another greatest area; the least area gives way to it.

        Raises:
            InputError: ``max_pixels`` is no whole number above 0.
        """
        most = arguments.whole("max_pixels", max_pixels, 1)
        return replace(self, min_pixels=min(self.min_pixels, most), max_pixels=most)

    def n_tokens(self, picture: Image.Image) -> int:
        """Tokens that a picture will take, told by its size alone.

        Raises:
            InputError: The picture cannot be cut.
        """
        width, height = self._first_size(picture)
        _, grid_h, grid_w = preprocess.grid_for(
            height,
            width,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            patch_size=self.patch_size,
        )
        return grid_h * grid_w // _PATCHES_PER_TOKEN

    def __call__(self, picture: Image.Image) -> tuple[npt.NDArray[np.float32], int, int]:
        """Cuts one RGB picture.

        Returns:
            Patches, float32 ``[grid_h * grid_w, 6 * patch_size**2]``, and the two sides of the
            grid.
        """
        size = self._first_size(picture)
        if picture.size != size:
            picture = picture.resize(size, Image.Resampling.BICUBIC)
        patches, (_, grid_h, grid_w) = preprocess.preprocess(
            picture,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            patch_size=self.patch_size,
            image_mean=self.image_mean,
            image_std=self.image_std,
        )
        return patches, int(grid_h), int(grid_w)

    def _first_size(self, picture: Image.Image) -> tuple[int, int]:
        """Width and height that a picture is brought to before it is sized for the model."""
        if self.first_pixels is None:
            return picture.size
        least, most = self.first_pixels
        height, width = preprocess.smart_resize(
            picture.height,
            picture.width,
            factor=self.patch_size * MERGE_SIZE,
            min_pixels=least,
            max_pixels=most,
        )
        return width, height


def _settle(
    name: str, given: int | None, profile: Profile, metadata: Mapping[str, Any], default: int
) -> tuple[int, str]:
    candidates = (
        (given, "argument"),
        (getattr(profile, name), f"profile {profile.name}"),
        (metadata.get(f"clip.vision.image_{name}"), "mmproj file"),
        (default, "default of the Qwen2-VL processor"),
    )
    value, reason = next(pair for pair in candidates if pair[0] is not None)
    return arguments.whole(name, value, 1), reason
