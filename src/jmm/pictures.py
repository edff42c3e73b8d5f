"""Pictures that have been read: patches for the vision tower, or what it made of them."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from jmm.errors import ContextOverflowError, InputError
from jmm.gguf_header import MERGE_SIZE
from jmm.images import is_image, to_rgb
from jmm.profiles import Tile, Tiled

if TYPE_CHECKING:
    import numpy.typing as npt

    from jmm.processor import Processor
    from jmm.profiles import Picture
    from jmm.tiles import TileProcessor

_MAGIC = b"jmm vision tokens 1\n"


@dataclass(frozen=True, eq=False, repr=False)
class VisionTokens:
    """One picture as the vision tower left it, ready for a language model of its family.

    Pickles, and goes through `to_bytes` and `from_bytes`. Stands wherever a picture may, and
    gives what the picture would have given.

    Attributes:
        values: float32 ``[grid_h * grid_w / 4, dim]``, C-contiguous: the rows that the language
            model reads in the picture's place.
        grid: Height and width in patches.
        fingerprint: Of the mmproj file that made them; see `Embedder.info`.

    Raises:
        InputError: The values have another shape or dtype, or hold NaN or infinity.

    Example:
        >>> tokens = VisionTokens(np.ones((6, 64), np.float32), (4, 6), "0123")
        >>> VisionTokens.from_bytes(tokens.to_bytes()).grid
        (4, 6)
    """

    values: npt.NDArray[np.float32]
    grid: tuple[int, int]
    fingerprint: str

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        try:
            grid_h, grid_w = map(operator.index, self.grid)
        except (TypeError, ValueError):
            raise InputError(
                f"the grid of vision tokens is {self.grid!r}; two whole numbers are needed"
            ) from None
        if min(grid_h, grid_w) < 1 or grid_h % MERGE_SIZE or grid_w % MERGE_SIZE:
            raise InputError(
                f"the grid of vision tokens is {grid_h} x {grid_w}; both must be multiples of "
                f"{MERGE_SIZE} above 0"
            )
        n_tokens = grid_h * grid_w // MERGE_SIZE**2
        if values.dtype != np.float32 or values.ndim != 2 or len(values) != n_tokens:
            raise InputError(
                f"vision tokens of {grid_h} x {grid_w} patches are float32 [{n_tokens}, dim]; "
                f"{values.dtype} {list(values.shape)} given"
            )
        if values.shape[1] == 0 or not np.isfinite(values).all():
            raise InputError("the vision tokens hold no numbers, NaN or infinity")
        object.__setattr__(self, "values", np.require(values, requirements=("C", "A")))
        object.__setattr__(self, "grid", (grid_h, grid_w))

    def __repr__(self) -> str:
        grid_h, grid_w = self.grid
        n_tokens, dim = self.values.shape
        return f"VisionTokens(tokens={n_tokens}, dim={dim}, grid={grid_h}x{grid_w})"

    def to_bytes(self) -> bytes:
        """The tokens as bytes, little-endian, for `from_bytes`."""
        head = {"grid": self.grid, "dim": self.values.shape[1], "fingerprint": self.fingerprint}
        return _MAGIC + json.dumps(head).encode() + b"\n" + self.values.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> VisionTokens:
        """The tokens that `to_bytes` wrote.

        Raises:
            InputError: The bytes are something else, cut short, or their head is damaged. The
                values have no checksum.
        """
        try:
            if not isinstance(data, bytes | bytearray | memoryview):
                raise TypeError(f"{type(data).__name__} given")
            if not bytes(data[: len(_MAGIC)]) == _MAGIC:
                raise ValueError("they start otherwise")
            head, values = bytes(data)[len(_MAGIC) :].split(b"\n", 1)
            fields = json.loads(head)
            (grid_h, grid_w), dim = fields["grid"], fields["dim"]
            array = np.frombuffer(values, "<f4").astype(np.float32).reshape(-1, dim)
            return cls(array, (grid_h, grid_w), str(fields["fingerprint"]))
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(f"these are not the bytes of vision tokens: {error}") from None


def n_bytes(held: object) -> int:
    """What an item holds in memory, taken or read: about, and 0 for what is small."""
    if isinstance(held, list):
        return sum(map(n_bytes, held))
    if isinstance(held, tuple):
        return n_bytes(held[0])
    if isinstance(held, np.ndarray):
        return held.nbytes
    if isinstance(held, Tiled):
        return sum(piece.pixels.nbytes for piece in held.pieces if isinstance(piece, Tile))
    if isinstance(held, _Taken):
        return 4 * held.picture.width * held.picture.height  # as Pillow keeps RGB
    return len(held) if isinstance(held, bytes | bytearray) else 0


def is_picture(source: object, *, str_is_path: bool = True) -> bool:
    """Whether ``source`` is one picture by its type: see `is_image`; or `VisionTokens`."""
    if isinstance(source, VisionTokens | _Taken):
        return True
    return is_image(source, str_is_path=str_is_path)


@dataclass(frozen=True)
class Reader:
    """Turns what the user passed as a picture into what `Engine.tokenize` takes.

    Attributes:
        processor: Cuts pictures into patches or tiles.
        max_image_pixels: Greatest area before resizing.
        reference_modes: See `to_rgb`.
        fingerprint: Of the mmproj file, which `VisionTokens` must carry.
        n_ctx: Most tokens of one picture.
    """

    processor: Processor | TileProcessor
    max_image_pixels: int
    reference_modes: bool
    fingerprint: str
    n_ctx: float = math.inf

    def limited(self, max_pixels: int | None) -> Reader:
        """The same with another greatest area after resizing, None for its own."""
        if max_pixels is None:
            return self
        return replace(self, processor=self.processor.limited(max_pixels))

    def take(self, source: object) -> object:
        """Reads at once what the caller may close or change before `__call__` comes to it.

        Raises:
            InputError, OutOfMemoryError: As of `to_rgb`.
        """
        if isinstance(source, Image.Image | np.ndarray) or hasattr(source, "read"):
            picture = self._rgb(source)
            return _Taken(picture.copy() if picture is source else picture)
        return bytes(source) if isinstance(source, bytearray | memoryview) else source

    def __call__(self, source: Any) -> Picture:
        """Reads one picture; safe to call from several threads.

        Args:
            source: What `take` has returned.

        Raises:
            InputError: It cannot be read, or was encoded by another tower.
            ContextOverflowError: It has more tokens than ``n_ctx``.
        """
        if isinstance(source, VisionTokens):
            if source.fingerprint != self.fingerprint:
                raise InputError(
                    f"the vision tokens carry the fingerprint {source.fingerprint!r}, and this "
                    f"model's mmproj has {self.fingerprint!r}: another tower made them"
                )
            return source.values, *source.grid, True
        picture = source.picture if isinstance(source, _Taken) else self._rgb(source)
        n_tokens = self.processor.n_tokens(picture)
        if n_tokens > self.n_ctx:
            advice = "lower max_pixels, or " if self.processor.max_pixels else ""
            raise ContextOverflowError(
                f"the picture has {n_tokens} tokens and n_ctx is {self.n_ctx}; {advice}raise n_ctx"
            )
        return self.processor(picture)

    def _rgb(self, source: Any) -> Image.Image:
        return to_rgb(
            source,
            reference_modes=self.reference_modes,
            max_image_pixels=self.max_image_pixels,
        )


@dataclass(frozen=True)
class _Taken:
    picture: Image.Image
