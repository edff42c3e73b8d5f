"""The engine as the user sees it: conducts the stages, computes nothing itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jmm import (
    _core,
    arguments,
    batching,
    checkpoint,
    demo,
    profiles,
    runtime,
    vectors,
)
from jmm.arguments import OnError, Options
from jmm.errors import (
    ContextOverflowError,
    DecodeError,
    InputError,
    JmmError,
    NonFiniteError,
    OutOfMemoryError,
)
from jmm.images import MAX_IMAGE_PIXELS, ImageSource, is_image, to_rgb
from jmm.processor import Processor
from jmm.progress import progress_bar

Float32: TypeAlias = npt.NDArray[np.float32]
Prepare: TypeAlias = Callable[[Any], "_core.Sequence"]

# One forward pass holds about this many tokens, or one longer item.
BATCH_TOKENS = 2048

# So many texts are planned together. A picture's patches stay in memory until it has run, so
# pictures are planned by tokens.
WINDOW_ITEMS = 4096
WINDOW_PICTURE_TOKENS = BATCH_TOKENS

_NOT_FINITE = (
    "the model gave NaN or infinity; the usual cause are F16 weights or activations beyond their "
    "range: try a BF16 or F32 file"
)

_logger = logging.getLogger("jmm")


class Embedder:
    """Embeds pictures and texts with one model, in this process.

    Safe to use from several threads: their native work runs one after another. Pickles by its
    arguments, and loads the model again where it is unpickled. Closed by `close`, at the end
    of a ``with`` block, or when it is collected.

    Args:
        model: GGUF file of the language model. None loads the built-in demo model.
        mmproj: GGUF file of the vision tower; without one, only texts can be embedded.
        task: One of the profile's tasks, which choose the prompts; None for its first.
        profile: Name of the model family; None picks it from the file's metadata.
        n_ctx: Most tokens of one item. None takes the profile's limit, or the model's.
        n_batch: Most tokens of one native batch. None sizes it by the work.
        n_ubatch: Most tokens of one forward pass. None sizes it by the work.
        n_threads: Threads that compute. None takes the cores that this process may use.
        n_gpu_layers: Layers to keep on a GPU; None for all where there is one, 0 for none.
        min_pixels: Least area of a picture after resizing, in pixels.
        max_pixels: Greatest area of a picture after resizing, in pixels; one token covers
            28 x 28 of them. None takes the profile's limit, or the file's.
        max_image_pixels: Greatest area of a picture before resizing; more is refused before it
            is decoded. None takes 178,956,970, where Pillow itself refuses.
        reference_modes: True brings pictures to RGB as the reference processor does: alpha
            dropped, EXIF orientation ignored.
        f16_kv: True keeps keys and values in half precision: half the cache, less exact.

    Raises:
        ModelLoadError: A file is missing, damaged, of the wrong kind, or the two do not fit.
        InputError: An argument is not allowed.
        OutOfMemoryError: The model does not fit in memory.

    Example:
        >>> with Embedder() as embedder:
        ...     embedder.encode_query(["red", "green", "blue"]).shape
        (3, 64)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        mmproj: str | os.PathLike[str] | None = None,
        *,
        task: str | None = None,
        profile: str | None = None,
        n_ctx: int | None = None,
        n_batch: int | None = None,
        n_ubatch: int | None = None,
        n_threads: int | None = None,
        n_gpu_layers: int | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        max_image_pixels: int | None = None,
        reference_modes: bool = False,
        f16_kv: bool = False,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "model": model,
            "mmproj": mmproj,
            "task": task,
            "profile": profile,
            "n_ctx": n_ctx,
            "n_batch": n_batch,
            "n_ubatch": n_ubatch,
            "n_threads": n_threads,
            "n_gpu_layers": n_gpu_layers,
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
            "max_image_pixels": max_image_pixels,
            "reference_modes": reference_modes,
            "f16_kv": f16_kv,
        }
        if model is None:
            if mmproj is not None:
                raise InputError("mmproj is given without a model; pass both, or none")
            model, mmproj = demo.paths()
        self._text = _read_header(model)
        checkpoint.check_text(self._text)
        self._mmproj = None if mmproj is None else _read_header(mmproj)
        if self._mmproj is not None:
            checkpoint.check_mmproj(self._mmproj, self._text)
        self._choice = profiles.choose(self._text.metadata, profile)
        self._profile = self._choice.profile
        self._task = self._check_task(task)
        self._processor = Processor.of(
            {} if self._mmproj is None else self._mmproj.metadata,
            self._profile,
            min_pixels,
            max_pixels,
        )
        self._max_image_pixels = (
            arguments.count("max_image_pixels", max_image_pixels) or MAX_IMAGE_PIXELS
        )
        self._reference_modes = reference_modes
        self._engine = _core.Engine(
            self._text.path,
            None if self._mmproj is None else self._mmproj.path,
            n_threads=arguments.count("n_threads", n_threads, runtime.MAX_THREADS)
            or runtime.default_threads(),
            n_gpu_layers=arguments.whole(
                "n_gpu_layers", -1 if n_gpu_layers is None else n_gpu_layers, -1
            ),
            n_batch=arguments.count("n_batch", n_batch),
            n_ubatch=arguments.count("n_ubatch", n_ubatch),
            f16_kv=f16_kv,
        )
        limit = self._engine.n_ctx_train
        self._n_ctx = arguments.count("n_ctx", n_ctx, limit) or min(
            self._profile.n_ctx or limit, limit
        )
        if self._mmproj is not None:
            self._check_specials()
        if self._arguments["model"] is None:
            _logger.warning("the built-in model is untrained: its vectors carry no meaning")

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self._arguments,)

    def __repr__(self) -> str:
        return (
            f"<Embedder {Path(self._text.path).name} profile={self._profile.name} dim={self.dim}>"
        )

    def close(self) -> None:
        """Frees the model; further calls raise InputError. Closing twice does nothing."""
        self._engine.close()

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self._engine.n_embd

    @property
    def profile(self) -> profiles.Profile:
        """The model family: prompts, pooling, limits."""
        return self._profile

    @property
    def info(self) -> dict[str, object]:
        """What was loaded and with which settings, as plain values."""
        return {
            "model": self._text.path,
            "mmproj": None if self._mmproj is None else self._mmproj.path,
            "name": self._text.metadata.get("general.name"),
            "description": self._text.metadata.get("general.description"),
            "architecture": self._text.architecture,
            "profile": self._profile.name,
            "profile_reason": self._choice.reason,
            "task": self._task,
            "tasks": self._profile.tasks,
            "dim": self.dim,
            "dims": self._profile.dims or None,
            "n_ctx": self._n_ctx,
            "n_threads": self._engine.n_threads,
            "min_pixels": self._processor.min_pixels,
            "max_pixels": self._processor.max_pixels,
            "pixels_reason": self._processor.reason,
            "reference_modes": self._reference_modes,
            "kv_cache": "f16" if self._arguments["f16_kv"] else "f32",
            "weight_bytes": self._engine.n_bytes,
            "llama_cpp": runtime.build_info()["llama_cpp"],
        }

    def encode_images(
        self,
        images: ImageSource | Iterable[ImageSource],
        *,
        truncate_dim: int | None = None,
        normalize: bool = True,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Float32:
        """Embeds one picture or many.

        Args:
            images: A picture, or an iterable of them. A picture is a path, the bytes or the
                binary file object of an image file, a PIL.Image, or a uint8 array ``[h, w]``,
                ``[h, w, 3]`` or ``[h, w, 4]``; an array with four axes is many.
            truncate_dim: Components to keep, one of ``profile.dims``; None for all.
            normalize: Brings each vector to unit length, after truncation.
            batch_size: Most items per forward pass; None leaves it to the planner.
            on_error: "raise" stops at the first bad item, "nan" fills its row with NaN,
                logs why and goes on.
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[dim]`` for one picture, C-contiguous ``[n, dim]`` for many, in order.

        Raises:
            InputError: An item is no readable picture, or the model reads none; ``index``
                tells which.
            ContextOverflowError: A picture has more tokens than ``n_ctx``.
            NonFiniteError: The model gave NaN or infinity.

        Example:
            >>> pages = np.full((2, 280, 196, 3), 255, np.uint8)
            >>> with Embedder() as embedder:
            ...     embedder.encode_images(pages).shape
            (2, 64)
        """
        self._require_vision()
        one = is_image(images)
        sources = [images] if one else arguments.listed(images, "pictures")
        options = Options(truncate_dim, normalize, batch_size, on_error, show_progress)
        rows = self._encode(sources, self._picture, options)
        return rows[0] if one else rows

    def encode_patches(
        self,
        patches: npt.ArrayLike,
        grid_thw: npt.ArrayLike,
        *,
        truncate_dim: int | None = None,
        normalize: bool = True,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Float32:
        """Embeds pictures that Hugging Face's Qwen2-VL processor has already cut.

        Args:
            patches: ``pixel_values``: float32 ``[sum of t*h*w, 1176]``, any strides.
            grid_thw: ``image_grid_thw``: whole numbers ``[n, 3]``, or ``[3]`` for one
                picture; t must be 1.
            truncate_dim: See `encode_images`; so are the options below.
            normalize: Brings each vector to unit length, after truncation.
            batch_size: Most items per forward pass.
            on_error: "raise" or "nan".
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[n, dim]``, or ``[dim]`` for a grid of one axis.

        Raises:
            InputError: Wrong dtype, shape or grid, or an item with NaN or infinity.

        Example:
            >>> patches = np.zeros((4 * 6, 1176), np.float32)
            >>> with Embedder() as embedder:
            ...     embedder.encode_patches(patches, [1, 4, 6]).shape
            (64,)
        """
        self._require_vision()
        sources, one = arguments.split_patches(patches, grid_thw, self._engine.patch_n_elem)
        options = Options(truncate_dim, normalize, batch_size, on_error, show_progress)
        rows = self._encode(sources, self._patch, options)
        return rows[0] if one else rows

    def encode_query(
        self,
        texts: str | Iterable[str],
        *,
        truncate_dim: int | None = None,
        normalize: bool = True,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Float32:
        """Embeds one query or many.

        Args:
            texts: A str, or an iterable of them. Markers of special tokens inside are text.
            truncate_dim: See `encode_images`; so are the options below.
            normalize: Brings each vector to unit length, after truncation.
            batch_size: Most items per forward pass.
            on_error: "raise" or "nan".
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[dim]`` for a str, C-contiguous ``[n, dim]`` for many, in order.

        Raises:
            InputError: An item is no str, is empty, or cannot be encoded as UTF-8.
            ContextOverflowError: A text has more tokens than ``n_ctx``.

        Example:
            >>> with Embedder() as embedder:
            ...     embedder.encode_query("a bar chart").dtype
            dtype('float32')
        """
        one = isinstance(texts, str)
        sources = [texts] if one else arguments.listed(texts, "texts")
        options = Options(truncate_dim, normalize, batch_size, on_error, show_progress)
        rows = self._encode(sources, self._query, options)
        return rows[0] if one else rows

    def encode_document(
        self,
        items: str | ImageSource | Iterable[str | ImageSource],
        *,
        truncate_dim: int | None = None,
        normalize: bool = True,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Float32:
        """Embeds one document or many: texts, pictures, or both in one call.

        Args:
            items: A document, or an iterable of them. A str is a text; every other kind of
                picture that `encode_images` takes is a picture (a file by ``pathlib.Path``).
            truncate_dim: See `encode_images`; so are the options below.
            normalize: Brings each vector to unit length, after truncation.
            batch_size: Most items per forward pass.
            on_error: "raise" or "nan".
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[dim]`` for one document, C-contiguous ``[n, dim]`` for many, in order.

        Raises:
            InputError: An item is neither a text nor a readable picture.
            ContextOverflowError: An item has more tokens than ``n_ctx``.

        Example:
            >>> with Embedder() as embedder:
            ...     embedder.encode_document(["a page", np.zeros((56, 56), np.uint8)]).shape
            (2, 64)
        """
        one = isinstance(items, str) or is_image(items, str_is_path=False)
        sources = [items] if one else arguments.listed(items, "documents")
        options = Options(truncate_dim, normalize, batch_size, on_error, show_progress)
        rows = self._encode(sources, self._document, options)
        return rows[0] if one else rows

    # --- one item to one sequence ---

    def _picture(self, source: ImageSource) -> _core.Sequence:
        picture = to_rgb(
            source,
            reference_modes=self._reference_modes,
            max_image_pixels=self._max_image_pixels,
        )
        self._check_length(self._processor.n_tokens(picture), is_picture=True)
        return self._engine.tokenize(self._profile.image_parts(*self._processor(picture)))

    def _patch(self, item: arguments.PatchItem) -> _core.Sequence:
        _, (_, grid_h, grid_w) = item
        patches = arguments.check_patches(item)
        return self._engine.tokenize(self._profile.image_parts(patches, int(grid_h), int(grid_w)))

    def _query(self, source: object) -> _core.Sequence:
        return self._text_sequence(self._profile.query[self._task], source)

    def _document(self, source: object) -> _core.Sequence:
        if is_image(source, str_is_path=False):
            self._require_vision()
            return self._picture(source)  # type: ignore[arg-type]
        return self._text_sequence(self._profile.document[self._task], source)

    def _text_sequence(self, prompt: profiles.Prompt, source: object) -> _core.Sequence:
        return self._engine.tokenize(
            self._profile.text_parts(prompt, arguments.text(source)),
            add_special=self._profile.add_special,
        )

    # --- many items to rows ---

    def _encode(self, sources: Sequence[Any], prepare: Prepare, options: Options) -> Float32:
        self._engine.check()
        n_components = vectors.check_dim(options.truncate_dim, self.dim, self._profile.dims)
        pooled = np.full((len(sources), self.dim), np.nan, dtype=np.float32)
        window: list[tuple[int, _core.Sequence]] = []
        picture_tokens = 0
        with progress_bar(len(sources), shown=bool(options.show_progress)) as advance:
            for index, source in enumerate(sources):
                try:
                    sequence = prepare(source)
                    self._check_length(
                        sequence.n_tokens, is_picture=sequence.picture_span is not None
                    )
                except Exception as error:
                    self._engine.check()
                    _fail(error, index, options.on_error)
                    advance(1)
                    continue
                window.append((index, sequence))
                picture_tokens += sequence.n_tokens if sequence.picture_span else 0
                if len(window) == WINDOW_ITEMS or picture_tokens >= WINDOW_PICTURE_TOKENS:
                    self._run_window(window, pooled, options, advance)
                    window, picture_tokens = [], 0
            self._run_window(window, pooled, options, advance)
        return vectors.finish(pooled, n_components, normalize=options.normalize)

    def _check_length(self, n_tokens: int, *, is_picture: bool) -> None:
        if n_tokens > self._n_ctx:
            advice = "lower max_pixels" if is_picture else "shorten or split the text"
            raise ContextOverflowError(
                f"the item has {n_tokens} tokens and n_ctx is {self._n_ctx}; "
                f"{advice}, or raise n_ctx (the model allows {self._engine.n_ctx_train})"
            )

    def _run_window(
        self,
        window: list[tuple[int, _core.Sequence]],
        pooled: Float32,
        options: Options,
        advance: Callable[[int], object],
    ) -> None:
        batches = batching.plan(
            [sequence.n_tokens for _, sequence in window],
            max_tokens=BATCH_TOKENS,
            max_sequences=min(options.batch_size or _core.MAX_SEQUENCES, _core.MAX_SEQUENCES),
        )
        for batch in batches:
            self._run_batch([window[i] for i in batch], pooled, options)
            advance(len(batch))

    def _run_batch(
        self, batch: list[tuple[int, _core.Sequence]], pooled: Float32, options: Options
    ) -> None:
        """Runs a batch; what fails in company runs again alone, so that each error has an item."""
        sequences = [sequence for _, sequence in batch]
        try:
            rows = np.empty((len(batch), self.dim), dtype=np.float32)
            finite = self._engine.forward(sequences, [self._span(s) for s in sequences], rows)
        except (DecodeError, MemoryError) as error:
            if not self._engine.is_open:
                raise
            if len(batch) == 1:
                _fail(error, batch[0][0], options.on_error)
            else:
                self._run_alone(batch, pooled, options)
            return
        if len(batch) == 1 and not finite[0]:
            _fail(NonFiniteError(_NOT_FINITE), batch[0][0], options.on_error)
            return
        for (index, _), row, is_finite in zip(batch, rows, finite, strict=True):
            if is_finite:
                pooled[index] = row
        failed = [item for item, is_finite in zip(batch, finite, strict=True) if not is_finite]
        self._run_alone(failed, pooled, options)

    def _run_alone(
        self, batch: list[tuple[int, _core.Sequence]], pooled: Float32, options: Options
    ) -> None:
        for item in batch:
            self._run_batch([item], pooled, options)

    def _span(self, sequence: _core.Sequence) -> tuple[int, int]:
        if sequence.picture_span is None:
            return 0, sequence.n_tokens
        return self._profile.picture_rows(sequence.picture_span, sequence.n_tokens)

    # --- settings ---

    def _require_vision(self) -> None:
        if self._mmproj is None:
            raise InputError(
                "the model reads no pictures: it was loaded without a vision tower; "
                "pass mmproj= to embed pictures"
            )

    def _check_specials(self) -> None:
        for token in self._profile.specials:
            if self._engine.tokenize([(token, True)]).n_tokens != 1:
                raise self._text.fail(
                    f"the vocabulary has no token {token}, which profile {self._profile.name} needs"
                )

    def _check_task(self, task: str | None) -> str:
        tasks = self._profile.tasks
        if task is not None and task not in tasks:
            raise InputError(
                f"task is {task!r}; profile {self._profile.name} has {', '.join(tasks)}"
            )
        return task or tasks[0]


def _restore(arguments_: dict[str, Any]) -> Embedder:
    return Embedder(**arguments_)


def _read_header(path: str | os.PathLike[str]) -> checkpoint.Header:
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise InputError(f"a model is the path of a file, and this is {path!r}") from None
    checkpoint.check_readable(name)
    return checkpoint.Header.of(name, *_core.read_gguf(name))


def _fail(error: Exception, index: int, on_error: OnError) -> None:
    if isinstance(error, MemoryError) and not isinstance(error, JmmError):
        error = OutOfMemoryError("no memory for the item")
    elif not isinstance(error, JmmError):
        # the item is an object of the caller's, whose methods may raise anything
        error = InputError(f"the item cannot be read: {type(error).__name__}: {error}")
    error.index = index
    if on_error == "raise":
        raise error
    _logger.warning("%s", error)
