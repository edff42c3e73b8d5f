"""The vision tower apart from the language model, so that the two can be scaled apart."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from jmm import _core, arguments, memory, profiles, runtime
from jmm import bundle as bundles
from jmm.ahead import map_ahead
from jmm.errors import DecodeError, InputError, NonFiniteError
from jmm.files import read_header
from jmm.gguf_header import check_mmproj
from jmm.images import MAX_IMAGE_PIXELS, ImageSource, is_image
from jmm.kinds import READER_THREADS
from jmm.pictures import Reader, VisionTokens, n_bytes
from jmm.pipeline import BYTES_AHEAD, N_AHEAD
from jmm.processor import Processor
from jmm.profiles import Tiled
from jmm.progress import progress_bar

if TYPE_CHECKING:
    from jmm.arguments import OnError
    from jmm.profiles import Patches

# So many patches are gathered before they run; the tower shares them out.
_WINDOW_PATCHES = 8192

_logger = logging.getLogger("jmm")


class VisionEncoder:
    """A vision tower without its language model.

    Turns pictures into `VisionTokens`, which an `Embedder` of the same mmproj file takes in the
    pictures' place: with ``Embedder(model, mmproj, load_vision=False)`` in another process, the
    one needs no language model and the other no tower.

    Safe to use from several threads. Pickles by its arguments.

    Args:
        mmproj: GGUF file of the vision tower, or a folder that ``jmm convert`` has written.
        profile: Model family, for the pixel limits; None picks it from the file.
        n_threads: Threads that compute. None takes the cores that this process may use.
        n_gpu_layers: 0 keeps it off a GPU.
        device: See `Embedder`.
        min_pixels: Least area of a picture after resizing, in pixels.
        max_pixels: Greatest area of a picture after resizing, in pixels. None takes the
            profile's limit, or the file's.
        max_image_pixels: Greatest area of a picture before resizing.
        reference_modes: See `Embedder`.

    Raises:
        ModelLoadError: The file is missing, damaged or of the wrong kind.
        InputError: An argument is not allowed.

    Example:
        >>> import numpy as np
        >>> from jmm import Embedder, demo
        >>> model, mmproj = demo.paths()
        >>> page = np.full((56, 84, 3), 200, np.uint8)
        >>> with VisionEncoder(mmproj) as encoder:
        ...     tokens = encoder.encode(page)
        >>> with Embedder(model, mmproj, load_vision=False) as embedder:
        ...     embedder.encode_images(tokens).shape
        (256,)
    """

    def __init__(
        self,
        mmproj: str | os.PathLike[str],
        *,
        profile: str | None = None,
        n_threads: int | None = None,
        n_gpu_layers: int | None = None,
        device: str | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        max_image_pixels: int | None = None,
        reference_modes: bool = False,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "mmproj": mmproj,
            "profile": profile,
            "n_threads": n_threads,
            "n_gpu_layers": n_gpu_layers,
            "device": device,
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
            "max_image_pixels": max_image_pixels,
            "reference_modes": reference_modes,
        }
        bundle = bundles.Bundle()
        if bundles.is_bundle(mmproj):
            bundle = bundles.open_bundle(mmproj)
            if bundle.arguments["mmproj"] is None:
                raise InputError(f"{os.fspath(mmproj)} is a folder without a vision tower")
            mmproj = bundle.arguments["mmproj"]
            min_pixels = bundle.own("min_pixels", min_pixels)
            max_pixels = bundle.own("max_pixels", max_pixels)
        header = read_header(mmproj)
        check_mmproj(header)
        try:
            choice = profiles.choose_vision(header.metadata, bundle.own("profile", profile))
        except InputError as error:
            if profile is not None:
                raise
            raise header.fail(error.message) from None  # no argument of the caller's
        self._path = header.path
        self._profile = choice.profile
        self._reader = Reader(
            Processor.of(header.metadata, choice.profile, min_pixels, max_pixels),
            arguments.count("max_image_pixels", max_image_pixels) or MAX_IMAGE_PIXELS,
            reference_modes,
            header.fingerprint(),
        )
        layers = arguments.whole("n_gpu_layers", -1 if n_gpu_layers is None else n_gpu_layers, -1)
        self._gpu = runtime.gpu(device, layers)
        if self._gpu is None:
            memory.check_weights(os.path.getsize(header.path), memory.available())
        self._tower = _core.Tower(
            header.path,
            n_threads=runtime.threads(n_threads),
            device=self._gpu,
            available=memory.available,
        )

    def __enter__(self) -> VisionEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self._arguments,)

    @property
    def is_open(self) -> bool:
        """Whether it can be used: not after `close`, nor after a failure that cost the tower."""
        return bool(self._tower.is_open)

    def close(self) -> None:
        """Frees the tower; further calls raise InputError. Closing twice does nothing."""
        self._tower.close()

    @property
    def dim(self) -> int:
        """Numbers per token."""
        return self._tower.n_embd_vision

    @property
    def info(self) -> dict[str, object]:
        """What was loaded and with which settings, as plain values."""
        return {
            "mmproj": self._path,
            "profile": self._profile.name,
            "fingerprint": self._reader.fingerprint,
            "dim": self.dim,
            "n_threads": self._tower.n_threads,
            "device": self._gpu or "cpu",
            "min_pixels": self._reader.processor.min_pixels,
            "max_pixels": self._reader.processor.max_pixels,
        }

    def encode(
        self,
        images: ImageSource | Iterable[ImageSource],
        *,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Any:
        """Runs pictures through the tower.

        Args:
            images: A picture, or an iterable of them; see `Embedder.encode_images`.
            on_error: "raise" stops at the first bad picture, "nan" gives None in its place,
                logs why and goes on.
            show_progress: True draws a progress bar on stderr.

        Returns:
            `VisionTokens` for one picture, a list of them for many, in order.

        Raises:
            InputError: An item is no readable picture; ``index`` tells which.
            NonFiniteError: The tower gave NaN or infinity.

        Example:
            >>> import numpy as np
            >>> from jmm import demo
            >>> with VisionEncoder(demo.paths()[1]) as encoder:
            ...     [tokens.grid for tokens in encoder.encode(np.zeros((2, 84, 84, 3), np.uint8))]
            [(6, 6), (6, 6)]
        """
        return encode(self._tower, self._reader, images, on_error, show_progress)


def encode(
    tower: _core.Tower | _core.Engine,
    reader: Reader,
    images: ImageSource | Iterable[ImageSource],
    on_error: OnError,
    show_progress: bool | None,
) -> Any:
    """`VisionEncoder.encode` with any engine that has a tower."""
    arguments.Options(on_error=on_error, show_progress=show_progress)
    tower.check()
    one = is_image(images)
    sources = [images] if one else arguments.listed(images, "pictures")
    encoded: list[VisionTokens | None] = [None] * len(sources)
    finished = 0
    with progress_bar(len(sources), shown=bool(show_progress)) as advance:
        for window in _windows(reader, sources, on_error):
            for index, tokens in _run(tower, reader.fingerprint, window, on_error):
                encoded[index] = tokens
            advance(window[-1][0] + 1 - finished)
            finished = window[-1][0] + 1
        advance(len(sources) - finished)
    return encoded[0] if one else encoded


def _windows(
    reader: Reader, sources: list[Any], on_error: OnError
) -> Iterator[list[tuple[int, Patches]]]:
    window: list[tuple[int, Patches]] = []
    gathered = 0
    items = map_ahead(
        reader,
        sources,
        take=reader.take,
        n_threads=READER_THREADS if len(sources) > 1 else 0,
        n_ahead=N_AHEAD,
        weigh=n_bytes,
        max_weight=BYTES_AHEAD,
    )
    with closing(items):
        for index, item in enumerate(items):
            if isinstance(item, Tiled):
                item = InputError(
                    "vision tokens are of Qwen's families alone; pass the pictures themselves to "
                    "the methods that embed them"
                )
            if not isinstance(item, Exception) and isinstance(item[-1], bool):
                item = InputError("a picture is needed, and these VisionTokens are encoded already")
            if isinstance(item, Exception):
                arguments.fail(item, index, on_error)
                continue
            window.append((index, item[:3]))
            gathered += len(item[0])
            if gathered >= _WINDOW_PATCHES:
                yield window
                window, gathered = [], 0
    if window:
        yield window


def _run(
    tower: _core.Tower | _core.Engine,
    fingerprint: str,
    window: list[tuple[int, Patches]],
    on_error: OnError,
) -> Iterator[tuple[int, VisionTokens]]:
    try:
        outputs = tower.encode_vision([patches for _, patches in window])
    except (DecodeError, MemoryError) as error:
        if not tower.is_open:
            raise
        if len(window) == 1:
            arguments.fail(error, window[0][0], on_error)
            return
        size = len(window) // 2 if isinstance(error, MemoryError) else 1
        for start in range(0, len(window), size):
            yield from _run(tower, fingerprint, window[start : start + size], on_error)
        return
    for item, values in zip(window, outputs, strict=True):
        index, (_, grid_h, grid_w) = item
        if np.isfinite(values).all():
            yield index, VisionTokens(values, (grid_h, grid_w), fingerprint)
        elif len(window) > 1:  # a neighbour's NaN may have spread
            yield from _run(tower, fingerprint, [item], on_error)
        else:
            arguments.fail(NonFiniteError("the vision tower gave NaN or infinity"), index, on_error)


def _restore(arguments_: dict[str, Any]) -> VisionEncoder:
    return VisionEncoder(**arguments_)
