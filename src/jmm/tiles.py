"""RGB picture to the tiles that towers of one fixed size take, and the tokens around them.

Sizes, crops and tokens are those of transformers' PIL image processors and processors (read in
5.24.0): ``Gemma3ImageProcessorPil``, ``SmolVLMImageProcessorPil``, ``LlavaImageProcessorPil``,
``GotOcr2ImageProcessorPil`` with ``InternVLProcessor``, and ``Gemma4ImageProcessorPil`` with
``EmbeddingGemma2Processor``, bit for bit on the same Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from PIL import Image

from jmm.errors import InputError, OutOfMemoryError
from jmm.gguf_header import gemma4_sizes, projector_type, tile_tokens
from jmm.preprocess import MAX_ASPECT_RATIO, normalise
from jmm.profiles import Special, Tile, Tiled

if TYPE_CHECKING:
    from collections.abc import Sequence

Size: TypeAlias = tuple[int, int]
Pieces: TypeAlias = "Iterator[Special | str | Tile]"

# Idefics3 never makes a side longer.
_IDEFICS_MAX_SIDE = 4096


@dataclass(frozen=True)
class Cut:
    """How a picture of one size is cut.

    Attributes:
        sizes: Width and height that it is resized to, one after the other.
        n_rows: Of tiles, 0 where the picture is not cut.
        n_columns: Of tiles.
        whole: Index into ``sizes`` of what the whole picture as one tile is resized from; None
            for the original.
        has_whole: Whether there is such a tile.
        is_middle: Whether that is the middle of the last size, and nothing resized.
        shape: Width and height of the tile of the whole picture; None for the family's.
    """

    sizes: tuple[Size, ...] = ()
    n_rows: int = 0
    n_columns: int = 0
    whole: int | None = None
    has_whole: bool = True
    is_middle: bool = False
    shape: Size | None = None

    @property
    def n_tiles(self) -> int:
        """Tiles, with that of the whole picture."""
        return self.n_rows * self.n_columns + self.has_whole


@dataclass(frozen=True)
class Family:
    """What one kind of tower needs.

    Attributes:
        resample: Filter of every resize.
        cut: From width, height, side of a tile and the mmproj's metadata.
        lay_out: Puts the family's tokens around tiles by rows, the whole picture's last.
    """

    resample: Image.Resampling
    cut: Callable[[int, int, int, Mapping[str, Any]], Cut]
    lay_out: Callable[[Sequence[Sequence[Tile]], Tile | None], Pieces]


@dataclass(frozen=True)
class TileProcessor:
    """Turns RGB pictures into the tiles that one model takes.

    Attributes:
        family: What its kind of tower needs.
        metadata: Of the mmproj file.
        side: Pixels of a tile's side.
        tile_tokens: Rows that the tower makes of a tile, where all have one size.
        min_pixels: Always None: the size is the family's.
        max_pixels: Always None.
        reason: Where the size comes from.
    """

    family: Family
    metadata: Mapping[str, Any]
    side: int
    tile_tokens: int
    min_pixels: None = None
    max_pixels: None = None
    reason: str = "tiles of the mmproj file's image_size"

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> TileProcessor | None:
        """The processor of an mmproj file; None if its tower takes no tiles."""
        projector = projector_type(metadata)
        family = FAMILIES.get(str(projector))
        if family is None:
            return None
        if projector == "gemma4v":
            side, n_tokens = gemma4_sizes(metadata)
            reason = f"at most {n_tokens} rows of {side} x {side} pixels of a picture"
            return cls(family, metadata, side, 1, reason=reason)
        side = metadata["clip.vision.image_size"]
        return cls(family, metadata, side, tile_tokens(str(projector), metadata))

    def limited(self, max_pixels: int) -> TileProcessor:
        """Raises InputError: the size is the family's."""
        raise InputError(
            f"a limit of {max_pixels} pixels is given; this family of models has no limit to set "
            f"({self.reason})"
        )

    def n_tokens(self, picture: Image.Image) -> int:
        """Rows that the tower will make of a picture, told by its size alone.

        Raises:
            InputError: The picture cannot be cut.
        """
        cut = self._cut(picture)
        if cut.shape is not None:
            return cut.shape[0] * cut.shape[1] // self.side**2
        return cut.n_tiles * self.tile_tokens

    def __call__(self, picture: Image.Image) -> Tiled:
        """Cuts one RGB picture.

        Raises:
            InputError: It is too long and thin.
            OutOfMemoryError: There is no memory for the tiles.
        """
        cut = self._cut(picture)
        try:
            return Tiled(tuple(self.family.lay_out(*self._tiles(picture, cut))))
        except MemoryError as error:
            raise OutOfMemoryError(
                f"no memory for {cut.n_tiles} tiles of a picture of "
                f"{picture.width}x{picture.height} pixels"
            ) from error

    def _cut(self, picture: Image.Image) -> Cut:
        width, height = picture.size
        if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
            raise InputError(
                f"a picture of {width}x{height} pixels has an aspect ratio above "
                f"{MAX_ASPECT_RATIO}; crop or split it"
            )
        return self.family.cut(width, height, self.side, self.metadata)

    def _tiles(self, picture: Image.Image, cut: Cut) -> tuple[list[list[Tile]], Tile | None]:
        stages = [picture]
        for size in cut.sizes:
            stages.append(self._resized(stages[-1], size))
        side = self.side
        rows = [
            [
                self._tile(stages[-1].crop((x, y, x + side, y + side)))
                for x in range(0, cut.n_columns * side, side)
            ]
            for y in range(0, cut.n_rows * side, side)
        ]
        if not cut.has_whole:
            return rows, None
        if cut.is_middle:
            x, y = ((length - side) // 2 for length in stages[-1].size)
            return rows, self._tile(stages[-1].crop((x, y, x + side, y + side)))
        source = picture if cut.whole is None else stages[cut.whole + 1]
        return rows, self._tile(self._resized(source, cut.shape or (side, side)))

    def _resized(self, picture: Image.Image, size: Size) -> Image.Image:
        return picture if picture.size == size else picture.resize(size, self.family.resample)

    def _tile(self, picture: Image.Image) -> Tile:
        mean = self.metadata["clip.vision.image_mean"]
        std = self.metadata["clip.vision.image_std"]
        return Tile(normalise(picture, mean, std))


def _cut_nothing(_width: int, _height: int, _side: int, _metadata: Mapping[str, Any]) -> Cut:
    return Cut()


def _cut_middle(width: int, height: int, side: int, _metadata: Mapping[str, Any]) -> Cut:
    short, long = sorted((width, height))
    longer = int(side * long / short)
    return Cut(((side, longer) if width <= height else (longer, side),), is_middle=True)


def _cut_gemma4(width: int, height: int, side: int, metadata: Mapping[str, Any]) -> Cut:
    n_tokens = gemma4_sizes(metadata)[1]
    factor = math.sqrt(n_tokens * side**2 / (width * height))
    n_rows, n_columns = (math.floor(factor * length / side) for length in (height, width))
    if n_rows == 0:
        n_rows, n_columns = 1, min(width // height, n_tokens)
    elif n_columns == 0:
        n_rows, n_columns = min(height // width, n_tokens), 1
    return Cut(shape=(n_columns * side, n_rows * side))


def _cut_idefics3(width: int, height: int, side: int, metadata: Mapping[str, Any]) -> Cut:
    longest = int(metadata.get("clip.vision.preproc_image_size", side))
    first = _below(*_to_longest(width, height, longest), _IDEFICS_MAX_SIDE)
    width, height = first
    ratio = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        height = math.ceil(int(width / ratio) / side) * side
    else:
        height = math.ceil(height / side) * side
        width = math.ceil(int(height * ratio) / side) * side
    if height <= side and width <= side:
        return Cut((first,), whole=0)
    return Cut((first, (width, height)), height // side, width // side, whole=1)


def _to_longest(width: int, height: int, longest: int) -> Size:
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    return max(width, 1), max(height, 1)


def _below(width: int, height: int, limit: int) -> Size:
    ratio = width / height
    if width >= height and width > limit:
        width, height = limit, int(limit / ratio)
    elif height > width and height > limit:
        width, height = int(limit * ratio), limit
    return max(width, 1), max(height, 1)


def _cut_internvl(width: int, height: int, side: int, metadata: Mapping[str, Any]) -> Cut:
    least = int(metadata.get("clip.vision.preproc_min_tiles", 1))
    most = int(metadata.get("clip.vision.preproc_max_tiles", 12))
    grids = [
        (n_columns, n_rows)
        for n_columns in range(1, most + 1)
        for n_rows in range(1, most + 1)
        if least <= n_columns * n_rows <= most
    ]
    best, least_difference = (1, 1), math.inf
    for n_columns, n_rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        difference = abs(width / height - n_columns / n_rows)
        is_large = width * height > 0.5 * side * side * n_columns * n_rows
        if difference < least_difference or (difference == least_difference and is_large):
            best, least_difference = (n_columns, n_rows), difference
    n_columns, n_rows = best
    size = n_columns * side, n_rows * side
    return Cut((size,), n_rows, n_columns, has_whole=n_columns * n_rows > 1)


def _lay_out_plain(_rows: Sequence[Sequence[Tile]], whole: Tile | None) -> Pieces:
    if whole is not None:
        yield whole


def _lay_out_gemma3(_rows: Sequence[Sequence[Tile]], whole: Tile | None) -> Pieces:
    yield "\n\n"
    yield Special("<start_of_image>")
    yield from _lay_out_plain((), whole)
    yield Special("<end_of_image>")
    yield "\n\n"


def _lay_out_gemma4(_rows: Sequence[Sequence[Tile]], whole: Tile | None) -> Pieces:
    yield Special("<|image>")
    yield from _lay_out_plain((), whole)
    yield Special("<image|>")


def _lay_out_idefics3(rows: Sequence[Sequence[Tile]], whole: Tile | None) -> Pieces:
    around = Special("<fake_token_around_image>")
    for y, row in enumerate(rows, start=1):
        for x, tile in enumerate(row, start=1):
            yield from (around, Special(f"<row_{y}_col_{x}>"), tile)
        yield "\n"
    if rows:
        yield "\n"
    yield from (around, Special("<global-img>"))
    yield from _lay_out_plain((), whole)
    yield around


def _lay_out_internvl(rows: Sequence[Sequence[Tile]], whole: Tile | None) -> Pieces:
    yield Special("<img>")
    for row in rows:
        yield from row
    yield from _lay_out_plain((), whole)
    yield Special("</img>")


FAMILIES = {
    "gemma3": Family(Image.Resampling.BILINEAR, _cut_nothing, _lay_out_gemma3),
    "idefics3": Family(Image.Resampling.LANCZOS, _cut_idefics3, _lay_out_idefics3),
    "mlp": Family(Image.Resampling.BICUBIC, _cut_middle, _lay_out_plain),
    "gemma4v": Family(Image.Resampling.BICUBIC, _cut_gemma4, _lay_out_gemma4),
    "internvl": Family(Image.Resampling.BICUBIC, _cut_internvl, _lay_out_internvl),
}
