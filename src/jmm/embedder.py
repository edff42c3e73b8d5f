"""The engine as the user sees it: conducts the stages, computes nothing itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from jmm import _core, arguments, demo, hub, memory, profiles, runtime, vectors, vision
from jmm import bundle as bundles
from jmm.arguments import MultiVectors, OnError, Options
from jmm.call import Call, Vectors
from jmm.errors import InputError, OutOfMemoryError
from jmm.files import ModelFiles
from jmm.fingerprint import vector_fingerprint
from jmm.gguf_header import projector_type
from jmm.images import MAX_IMAGE_PIXELS, ImageSource
from jmm.kinds import Kind, Kinds
from jmm.pictures import Reader, VisionTokens, is_picture
from jmm.pipeline import BATCH_TOKENS, CELLS_PER_TOKEN, WINDOW_ITEMS, Pipeline
from jmm.processor import Processor
from jmm.projector import Projector, needed
from jmm.trace import Trace, trace
from jmm.vectors import Precision

Picture: TypeAlias = "ImageSource | VisionTokens"
Piece: TypeAlias = "str | Picture"

# Items that `encode_iter` gathers before they run.
ITER_ITEMS = 256

_logger = logging.getLogger("jmm")


class Embedder:
    """Embeds pictures and texts with one model, in this process.

    Safe to use from several threads: their native work runs one after another. Pickles by its
    arguments, and loads the model again where it is unpickled. Closed by `close`, at the end
    of a ``with`` block, or when it is collected.

    Args:
        model: GGUF file of the language model, or a folder that ``jmm convert`` has written,
            which names all its files. None loads the built-in demo model.
        mmproj: GGUF file of the vision tower; without one, only texts can be embedded.
        task: One of the model's tasks, which choose the prompts and the adapter; None for the
            first. Each call may name another.
        adapters: GGUF files of LoRA adapters by task: ``{"retrieval": path, ...}``. They share
            the one copy of the weights; the tasks are then these, and each call uses one. A
            profile with several tasks must know the names, which choose the prompts.
        projector: GGUF file of the multi-vector projector; None takes that of ``model`` or
            ``mmproj``.
        load_vision: False leaves the tower's weights out: pictures then come as `VisionTokens`.
        profile: Name of the model family; None picks it from the file's metadata.
        n_ctx: Most tokens of one item. None takes the profile's limit, or the model's.
        n_batch: Most tokens of one native batch. None sizes it by the work.
        n_ubatch: Most tokens of one forward pass. None sizes it by the work.
        n_threads: Threads that compute. None takes the cores that this process may use.
        n_gpu_layers: Layers to keep on a GPU; None for all where there is one, 0 for none.
        device: Name of the GPU that runs both parts, as `devices` gives it; None for the first
            one, "cpu" for none. See docs/gpu.md.
        min_pixels: Least area of a picture after resizing, in pixels.
        max_pixels: Greatest area of a picture after resizing, in pixels; one token covers
            28 x 28 of them. None takes the profile's limit, or the file's.
        max_image_pixels: Greatest area of a picture before resizing; more is refused before it
            is decoded. None takes 178,956,970, where Pillow itself refuses.
        reference_modes: True brings pictures to RGB as the reference processor does: alpha
            dropped, EXIF orientation ignored.
        f16_kv: True keeps keys and values in half precision: half the cache, less exact.
        use_mmap: False reads the language model's weights into memory of this process, so that
            nothing depends on the file any more; a mapped one must not be written over.

    Raises:
        ModelLoadError: A file is missing, damaged, of the wrong kind, or the two do not fit.
        InputError: An argument is not allowed.
        OutOfMemoryError: The model does not fit in memory.

    Example:
        >>> with Embedder() as embedder:
        ...     embedder.encode_query(["red", "green", "blue"]).shape
        (3, 256)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        mmproj: str | os.PathLike[str] | None = None,
        *,
        task: str | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        projector: str | os.PathLike[str] | None = None,
        load_vision: bool = True,
        profile: str | None = None,
        n_ctx: int | None = None,
        n_batch: int | None = None,
        n_ubatch: int | None = None,
        n_threads: int | None = None,
        n_gpu_layers: int | None = None,
        device: str | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        max_image_pixels: int | None = None,
        reference_modes: bool = False,
        f16_kv: bool = False,
        use_mmap: bool = True,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "model": model,
            "mmproj": mmproj,
            "task": task,
            "adapters": adapters,
            "projector": projector,
            "load_vision": load_vision,
            "profile": profile,
            "n_ctx": n_ctx,
            "n_batch": n_batch,
            "n_ubatch": n_ubatch,
            "n_threads": n_threads,
            "n_gpu_layers": n_gpu_layers,
            "device": device,
            "min_pixels": min_pixels,
            "max_pixels": max_pixels,
            "max_image_pixels": max_image_pixels,
            "reference_modes": reference_modes,
            "f16_kv": f16_kv,
            "use_mmap": use_mmap,
        }
        bundle = bundles.Bundle()
        if model is None:
            if mmproj is not None:
                raise InputError("mmproj is given without a model; pass both, or none")
            model, mmproj = demo.paths()
        elif bundles.is_bundle(model):
            if mmproj is not None or adapters is not None:
                raise InputError(
                    f"{os.fspath(model)} is a folder, which names its own mmproj and adapters; "
                    "pass the folder alone"
                )
            bundle = bundles.open_bundle(model)
            model, mmproj, adapters = (
                bundle.arguments[name] for name in ("model", "mmproj", "adapters")
            )
            min_pixels = bundle.own("min_pixels", min_pixels)
            max_pixels = bundle.own("max_pixels", max_pixels)
        self._files = ModelFiles.read(model, mmproj, adapters, projector)
        tower = self._files.mmproj
        self._choice = self._choose(profile, bundle)
        self._profile = self._choice.profile
        if bundle.dims:
            self._profile = replace(self._profile, dims=bundle.dims)
        self._profile.check_tasks(self._files.adapters)
        self._tasks = bundle.tasks or tuple(self._files.adapters) or self._profile.tasks
        self._task = self._tasks[0]
        self._task = self._check_task(task)
        n_layers = arguments.whole("n_gpu_layers", -1 if n_gpu_layers is None else n_gpu_layers, -1)
        self._gpu = runtime.gpu(device, n_layers)
        self._check_weights(load_vision, use_mmap)
        self._engine = _core.Engine(
            self._files.text.path,
            None if tower is None else tower.path,
            [header.path for header in self._files.adapters.values()],
            n_threads=runtime.threads(n_threads),
            device=self._gpu,
            n_gpu_layers=n_layers,
            n_batch=arguments.count("n_batch", n_batch),
            n_ubatch=arguments.count("n_ubatch", n_ubatch),
            f16_kv=f16_kv,
            use_mmap=use_mmap,
            with_tower=load_vision,
            available=memory.available,
        )
        limit = self._engine.n_ctx_train
        self._n_ctx = arguments.count("n_ctx", n_ctx, limit) or min(
            self._profile.n_ctx or limit, limit
        )
        self._reader = Reader(
            Processor.of(
                {} if tower is None else tower.metadata, self._profile, min_pixels, max_pixels
            ),
            arguments.count("max_image_pixels", max_image_pixels) or MAX_IMAGE_PIXELS,
            reference_modes,
            self._files.fingerprint,
            self._n_ctx,
        )
        self._kinds = Kinds(self._engine, self._profile, self._reader, tower is not None)
        if tower is not None:
            self._check_specials()
        self._peaks = self._check_memory()
        self._vector_fingerprint = vector_fingerprint(
            self._files, self._profile, self._settings() | {"f16_kv": bool(f16_kv)}
        )
        self._origin = hub.Pretrained({})
        if self._arguments["model"] is None:
            _logger.info("the built-in model knows drawn shapes, words and digits alone")

    @classmethod
    def from_pretrained(
        cls,
        repo: str | os.PathLike[str],
        *,
        revision: str | None = None,
        file_type: str | None = None,
        model: str | None = None,
        mmproj: str | Literal[False] | None = None,
        adapters: Mapping[str, str] | None = None,
        projector: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
        token: str | bool | None = None,
        show_progress: bool | None = None,
        **options: Any,
    ) -> Embedder:
        """Loads a model by the name of its repo, through huggingface_hub (extra ``hub``).

        Files that are not in the cache are downloaded, from where an earlier call stopped. Each
        is checked against the hash that the commit names.

        Args:
            repo: ``org/name``; or a folder, of which the same choice is made.
            revision: Branch, tag or commit; None for "main". A commit that was loaded before
                needs no network.
            file_type: Which of several quantizations, such as "Q4_K_M", in any case.
            model: Exact name of the language model's file in the repo; None chooses.
            mmproj: Exact name of the vision tower's file; None takes the only one, or the one of
                the same ``file_type``; False takes none.
            adapters: Exact names of LoRA adapters by task.
            projector: Exact name of the multi-vector projector's file.
            cache_dir: Where files are kept; None for huggingface_hub's cache.
            local_files_only: True loads what is in the cache and uses no network, as does
                HF_HUB_OFFLINE=1.
            token: Access token; None for the saved one, False for none. It is not pickled.
            show_progress: True draws a progress bar per file on stderr.
            **options: Of `Embedder`: ``task``, ``n_ctx``, ``max_pixels`` and so on.

        Returns:
            Embedder: ``info`` tells ``repo``, ``revision`` (the commit) and ``sha256`` of each
            file. It pickles with the commit.

        Raises:
            InputError: The name is none, or several files fit and none is chosen.
            ModelLoadError: The repo, revision or a file is not there, not allowed, not to be
                reached, or damaged.
            MissingExtraError: huggingface_hub is not installed.

        Example:
            >>> Embedder.from_pretrained("org/name", file_type="Q8_0")  # doctest: +SKIP
            <Embedder name-Q8_0.gguf profile=jina-embeddings-v4 dim=2048>
        """
        signature(cls).bind_partial(**options)  # a wrong name is an error before the download
        origin = hub.fetch(
            repo,
            hub.Wanted(file_type, model, mmproj, adapters, projector),
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
            show_progress=show_progress,
        )
        embedder = cls(**origin.arguments, **options)
        embedder._origin = origin
        return embedder

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        if self._origin.repo is not None:
            return _restore_pretrained, ({**self._arguments, **self._origin.keywords},)
        return _restore, (self._arguments,)

    def __repr__(self) -> str:
        return (
            f"<Embedder {Path(self._files.text.path).name} profile={self._profile.name} "
            f"dim={self.dim}>"
        )

    @property
    def is_open(self) -> bool:
        """Whether it can be used: not after `close`, nor after a failure that cost the model."""
        return bool(self._engine.is_open)

    def close(self) -> None:
        """Frees the model; further calls raise InputError. Closing twice does nothing."""
        self._engine.close()

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self._engine.n_embd

    @property
    def multi_vector_dim(self) -> int | None:
        """Components of a token's vector; None for a model without a multi-vector projector."""
        projector = self._files.projectors.get(None)
        return None if projector is None else projector.dim

    @property
    def profile(self) -> profiles.Profile:
        """The model family: prompts, pooling, limits."""
        return self._profile

    @property
    def info(self) -> dict[str, object]:
        """What was loaded and with which settings, as plain values.

        ``peak_bytes`` tells resident memory in bytes, beside the interpreter's: once ``loaded``,
        and then at most with a full batch of ``texts``, the ``longest_text`` of ``n_ctx`` tokens,
        and one ``picture`` of ``max_pixels`` (of Qwen's families). ``vector_fingerprint`` changes
        when vectors of the same items may: store it beside them.
        """
        projector = self._arguments["projector"]
        return {
            "model": self._files.text.path,
            "mmproj": None if self._files.mmproj is None else self._files.mmproj.path,
            "projector": None if projector is None else os.fsdecode(projector),
            "repo": self._origin.repo,
            "revision": self._origin.revision,
            "sha256": dict(self._origin.sha256),
            "fingerprint": self._files.fingerprint or None,
            "vector_fingerprint": self._vector_fingerprint,
            "adapters": {task: header.path for task, header in self._files.adapters.items()},
            "name": self._files.text.metadata.get("general.name"),
            "description": self._files.text.metadata.get("general.description"),
            "architecture": self._files.text.architecture,
            "profile": self._profile.name,
            "profile_reason": self._choice.reason,
            "task": self._task,
            "tasks": self._tasks,
            "dim": self.dim,
            "dims": self._profile.dims or None,
            "multi_vector_dim": self.multi_vector_dim,
            "n_ctx": self._n_ctx,
            "n_threads": self._engine.n_threads,
            "device": self._gpu or "cpu",
            **self._settings(),
            "pixels_reason": self._reader.processor.reason,
            "kv_cache": "f16" if self._arguments["f16_kv"] else "f32",
            "weight_bytes": self._engine.n_bytes,
            "peak_bytes": dict(self._peaks),
            "llama_cpp": runtime.build_info()["llama_cpp"],
        }

    def encode_images(
        self,
        images: Picture | Iterable[Picture],
        *,
        task: str | None = None,
        multi_vector: MultiVectors = False,
        pool_factor: int | None = None,
        truncate_dim: int | None = None,
        normalize: bool = True,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Vectors:
        """Embeds one picture or many.

        Args:
            images: A picture, or an iterable of them. A picture is a path, the bytes or the
                binary file object of an image file, a PIL.Image, or a uint8 array ``[h, w]``,
                ``[h, w, 3]`` or ``[h, w, 4]``, or `VisionTokens`; an array with four axes is
                many.
            task: One of ``info["tasks"]``; None for the embedder's.
            multi_vector: True gives one vector per token instead of one per item, "both" gives
                both, of one pass through the model.
            pool_factor: With ``multi_vector``, keeps one vector for so many tokens of an item; see
                `pool_tokens`.
            truncate_dim: Components to keep, one of ``profile.dims``; None for all. Token
                vectors are not truncated.
            normalize: Brings each vector to unit length, after truncation.
            precision: "float32", or codes of fewer bits: "int8", "uint8", "binary" or
                "ubinary"; see `quantize`.
            ranges: float32 ``[2, components]`` from `calibrate`, for "int8" and "uint8".
            batch_size: Most items per forward pass; None leaves it to the planner.
            on_error: "raise" stops at the first bad item, "nan" fills its row with NaN (leaves
                it without tokens), logs why and goes on.
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[dim]`` for one picture, C-contiguous ``[n, dim]`` for many, in order; the
            dtype and width of `quantize` for another precision. With ``multi_vector=True`` float32
            ``[n_tokens, multi_vector_dim]`` for one, a `MultiVector` for many; with "both" a
            `BothVectors` of the two.

        Raises:
            InputError: An item is no readable picture, or the model reads none, or gives no
                token vectors; ``index`` tells which.
            ContextOverflowError: A picture has more tokens than ``n_ctx``.
            NonFiniteError: The model gave NaN or infinity.

        Example:
            >>> import numpy as np
            >>> pages = np.full((2, 280, 196, 3), 255, np.uint8)
            >>> with Embedder() as embedder:
            ...     embedder.encode_images(pages).shape
            (2, 256)
        """
        self._kinds.require_vision()
        one = is_picture(images)
        sources = [images] if one else arguments.listed(images, "pictures")
        options = Options(
            task,
            multi_vector,
            truncate_dim,
            normalize,
            precision,
            ranges,
            batch_size,
            on_error,
            show_progress,
            pool_factor,
        )
        return self._call(self._kinds.picture, options).whole(sources, one=one)

    def encode_patches(
        self,
        patches: npt.ArrayLike,
        grid_thw: npt.ArrayLike,
        *,
        task: str | None = None,
        multi_vector: MultiVectors = False,
        truncate_dim: int | None = None,
        normalize: bool = True,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Vectors:
        """Embeds pictures that Hugging Face's Qwen2-VL processor has already cut.

        Args:
            patches: ``pixel_values``: float32 ``[sum of t*h*w, 1176]``, any strides.
            grid_thw: ``image_grid_thw``: whole numbers ``[n, 3]``, or ``[3]`` for one
                picture; t must be 1.
            task: See `encode_images`; so are all options below.
            multi_vector: True gives one vector per token, "both" both kinds.
            truncate_dim: Components to keep.
            normalize: Brings each vector to unit length.
            precision: "float32", "int8", "uint8", "binary" or "ubinary".
            ranges: For "int8" and "uint8".
            batch_size: Most items per forward pass.
            on_error: "raise" or "nan".
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[n, dim]``, or ``[dim]`` for a grid of one axis.

        Raises:
            InputError: Wrong dtype, shape or grid, or an item with NaN or infinity.

        Example:
            >>> import numpy as np
            >>> patches = np.zeros((4 * 6, 1176), np.float32)
            >>> with Embedder() as embedder:
            ...     embedder.encode_patches(patches, [1, 4, 6]).shape
            (256,)
        """
        self._kinds.require_vision()
        sources, one = arguments.split_patches(patches, grid_thw, self._engine.patch_n_elem)
        options = Options(
            task,
            multi_vector,
            truncate_dim,
            normalize,
            precision,
            ranges,
            batch_size,
            on_error,
            show_progress,
        )
        return self._call(self._kinds.patch, options).whole(sources, one=one)

    def encode_query(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        multi_vector: MultiVectors = False,
        truncate_dim: int | None = None,
        normalize: bool = True,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Vectors:
        """Embeds one query or many.

        Args:
            texts: A str, or an iterable of them. Markers of special tokens inside are text.
            task: See `encode_images`; so are all options below.
            multi_vector: True gives one vector per token, "both" both kinds.
            truncate_dim: Components to keep.
            normalize: Brings each vector to unit length.
            precision: "float32", "int8", "uint8", "binary" or "ubinary".
            ranges: For "int8" and "uint8".
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
        options = Options(
            task,
            multi_vector,
            truncate_dim,
            normalize,
            precision,
            ranges,
            batch_size,
            on_error,
            show_progress,
        )
        return self._call(self._kinds.query, options).whole(sources, one=one)

    def encode_document(
        self,
        items: Piece | Iterable[Piece | Sequence[Piece]],
        *,
        task: str | None = None,
        multi_vector: MultiVectors = False,
        pool_factor: int | None = None,
        truncate_dim: int | None = None,
        normalize: bool = True,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        batch_size: int | None = None,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Vectors:
        """Embeds one document or many: texts, pictures, or both, also within one document.

        Args:
            items: A document, or an iterable of them. A str is a text; every other kind of
                picture that `encode_images` takes is a picture (a file by ``pathlib.Path``). A
                list or tuple inside the iterable is one document of several texts and
                pictures, in order.
            task: See `encode_images`; so are all options below.
            multi_vector: True gives one vector per token, "both" both kinds.
            pool_factor: Keeps one vector for so many tokens.
            truncate_dim: Components to keep.
            normalize: Brings each vector to unit length.
            precision: "float32", "int8", "uint8", "binary" or "ubinary".
            ranges: For "int8" and "uint8".
            batch_size: Most items per forward pass.
            on_error: "raise" or "nan".
            show_progress: True draws a progress bar on stderr.

        Returns:
            float32 ``[dim]`` for one document, C-contiguous ``[n, dim]`` for many, in order.

        Raises:
            InputError: An item is neither a text nor a readable picture.
            ContextOverflowError: An item has more tokens than ``n_ctx``.

        Example:
            >>> import numpy as np
            >>> page = np.zeros((56, 56), np.uint8)
            >>> with Embedder() as embedder:
            ...     embedder.encode_document(["a text", page, ["front", page, "back", page]]).shape
            (3, 256)
        """
        one = isinstance(items, str) or is_picture(items, str_is_path=False)
        sources = [items] if one else arguments.listed(items, "documents")
        options = Options(
            task,
            multi_vector,
            truncate_dim,
            normalize,
            precision,
            ranges,
            batch_size,
            on_error,
            show_progress,
            pool_factor,
        )
        return self._call(self._kinds.document, options).whole(sources, one=one)

    def encode_iter(
        self,
        items: Iterable[Any],
        *,
        kind: Literal["document", "image", "query"] = "document",
        key: str | Callable[[Any], Any] | None = None,
        task: str | None = None,
        multi_vector: MultiVectors = False,
        pool_factor: int | None = None,
        truncate_dim: int | None = None,
        normalize: bool = True,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        batch_size: int | None = None,
        on_error: OnError = "raise",
    ) -> Iterator[Vectors]:
        """Embeds a stream: any iterable in, vectors out in order, within bounded memory.

        The next pictures are read and cut in threads while the present ones run (a PIL.Image or
        a file object is decoded as it is taken, since its owner may close it). Breaking out of
        the loop, or closing the iterator, ends the threads.

        Args:
            items: Any iterable, read as it is needed: at most 320 items beyond the last vector
                that was yielded; of pictures about 2,048 tokens and then 64 more, fewer where
                they hold over 64 MiB.
            kind: What the items are: what `encode_document`, `encode_images` or `encode_query`
                takes as one item. With "image" a str is a path.
            key: Where in an item that is, if not the item itself: a key of a dataset's rows, or
                a function.
            task: See `encode_images`; so are all options below.
            multi_vector: True gives one vector per token, "both" both kinds.
            pool_factor: Keeps one vector for so many tokens.
            truncate_dim: Components to keep.
            normalize: Brings each vector to unit length.
            precision: "float32", "int8", "uint8", "binary" or "ubinary".
            ranges: For "int8" and "uint8".
            batch_size: Most items per forward pass.
            on_error: "raise" ends the iteration at the first bad item; "nan" yields a row of
                NaN (or no tokens) for it.

        Yields:
            Per item what the other methods give for one item.

        Raises:
            InputError: At once: an option that is not allowed.
            JmmError: As of the other methods, once the iteration comes to it; ``index`` counts
                the items from 0. An item without the ``key`` is a bad item. What ``items`` itself
                raises passes through.

        Example:
            >>> import numpy as np
            >>> rows = ({"page": np.full((56, 56), grey, np.uint8)} for grey in (0, 128, 255))
            >>> with Embedder() as embedder:
            ...     [vector.shape for vector in embedder.encode_iter(rows, key="page")]
            [(256,), (256,), (256,)]
        """
        method = self._kinds.named(kind)
        options = Options(
            task,
            multi_vector,
            truncate_dim,
            normalize,
            precision,
            ranges,
            batch_size,
            on_error,
            pool_factor=pool_factor,
        )
        if isinstance(items, Mapping) or is_picture(items) or not isinstance(items, Iterable):
            raise InputError(f"{type(items).__name__} given; an iterable of items is needed")
        return self._call(method, options, ITER_ITEMS).stream(items, arguments.picker(key))

    def encode_vision(
        self,
        images: ImageSource | Iterable[ImageSource],
        *,
        on_error: OnError = "raise",
        show_progress: bool | None = None,
    ) -> Any:
        """Runs pictures through the vision tower alone.

        Args:
            images: See `encode_images`.
            on_error: "raise", or "nan" for None in a bad picture's place.
            show_progress: True draws a progress bar on stderr.

        Returns:
            `VisionTokens` for one picture, a list of them for many, in order. They stand
            wherever a picture may, here and in a process without the tower.

        Example:
            >>> import numpy as np
            >>> page = np.zeros((56, 84), np.uint8)
            >>> with Embedder() as embedder:
            ...     tokens = embedder.encode_vision(page)
            ...     bool((embedder.encode_images(tokens) == embedder.encode_images(page)).all())
            True
        """
        self._kinds.require_vision()
        return vision.encode(self._engine, self._reader, images, on_error, show_progress)

    def trace(
        self,
        item: Piece,
        *,
        kind: Literal["image", "query", "document"] = "image",
        task: str | None = None,
        multi_vector: bool = False,
        max_pixels: int | None = None,
    ) -> Trace:
        """Runs one item and keeps what the model made of each token.

        Args:
            item: What `encode_images`, `encode_query` or `encode_document` takes for one.
            kind: Which of the three.
            task: See `encode_images`.
            multi_vector: Whether the tokens' vectors are wanted too.
            max_pixels: Greatest area of the picture after resizing; None for the embedder's.

        Returns:
            Trace: Ids, hidden states, token vectors, and which rows belong to the picture.

        Raises:
            InputError: As of the other methods; or it has several pictures.
            NonFiniteError: The model gave NaN or infinity.

        Example:
            >>> import numpy as np
            >>> with Embedder() as embedder:
            ...     trace = embedder.trace(np.zeros((84, 84), np.uint8))
            >>> trace.grid, trace.picture
            ((3, 3), (1, 10))
        """
        self._engine.check()
        method = replace(self._kinds, reader=self._reader.limited(max_pixels)).named(kind)
        task = self._check_task(task)
        pipeline = self._pipeline(task, Options(task, multi_vector), WINDOW_ITEMS)
        return trace(pipeline, item, method(task))

    # --- settings ---

    def _call(
        self, kind: Callable[[str], Kind], options: Options, window_items: int = WINDOW_ITEMS
    ) -> Call:
        """Checks what a call asks for, before any item is looked at."""
        self._engine.check()
        task = self._check_task(options.task)
        pipeline = self._pipeline(task, options, window_items)
        n_components = vectors.check_dim(options.truncate_dim, self.dim, self._profile.dims)
        if options.ranges is not None:
            vectors.check_ranges(options.ranges, n_components)
        return Call(pipeline, kind(task), n_components, options)

    def _pipeline(self, task: str, options: Options, window_items: int) -> Pipeline:
        most = _core.MAX_SEQUENCES
        tasks = list(self._files.adapters)
        return Pipeline(
            self._engine,
            self._n_ctx,
            min(options.batch_size or most, most),
            options.on_error,
            tasks.index(task) if tasks else -1,
            self._projector(task) if options.multi_vector else None,
            options.normalize,
            window_items,
        )

    def _projector(self, task: str) -> Projector:
        projectors = self._files.projectors
        return needed(projectors.get(task) or projectors.get(None), self._files.text.path)

    def _settings(self) -> dict[str, object]:
        """What brings a picture to the tower."""
        return {
            "min_pixels": self._reader.processor.min_pixels,
            "max_pixels": self._reader.processor.max_pixels,
            "reference_modes": self._reader.reference_modes,
        }

    def _check_weights(self, load_vision: bool, use_mmap: bool) -> None:
        """The system would promise memory that is not there, and end the process later."""
        n_bytes = self._files.n_bytes_beside(tower=load_vision)
        if not use_mmap:
            n_bytes += self._files.n_bytes_text()
        if self._gpu is None:
            memory.check_weights(n_bytes, memory.available())

    def _check_memory(self) -> dict[str, int]:
        """Predicts the memory of the largest work, and refuses limits that cannot be served."""
        patches = self._engine.patch_n_elem > 0 and self._engine.has_tower
        found = memory.peaks(
            self._engine,
            self._engine.n_bytes + self._files.n_bytes_beside(tower=self._engine.has_tower),
            n_batch=BATCH_TOKENS * CELLS_PER_TOKEN,
            n_ctx=self._n_ctx,
            max_pixels=self._reader.processor.max_pixels if patches else None,
        )
        limits = {"longest_text": "n_ctx", "picture": "max_pixels"}
        given = {
            peak: f"{name}={self._arguments[name]}"
            for peak, name in limits.items()
            if self._arguments[name] is not None
        }
        try:
            memory.check_settings(found, given, memory.available())
        except OutOfMemoryError:
            self._engine.close()
            raise
        return found

    def _choose(self, name: str | None, bundle: bundles.Bundle) -> profiles.Choice:
        """The profile: the caller's, else that of the folder or of the files."""
        text, tower = self._files.text, self._files.mmproj
        if name is not None:
            return profiles.choose(text.metadata, name)
        written = bundle.arguments.get("profile")
        kind = None if tower is None else projector_type(tower.metadata)
        try:
            choice = profiles.choose(text.metadata, written, kind)
        except InputError as error:  # no argument of the caller's
            raise text.fail(error.message) from None
        if written is None:
            return choice
        return replace(choice, reason=f"named by {bundles.MANIFEST}")

    def _check_specials(self) -> None:
        for token in self._profile.specials:
            if self._engine.tokenize([(token, True)]).n_tokens != 1:
                raise self._files.text.fail(
                    f"the vocabulary has no token {token}, which profile {self._profile.name} needs"
                )

    def _check_task(self, task: str | None) -> str:
        if task is None:
            return self._task
        if not isinstance(task, str) or task not in self._tasks:
            owner = f"profile {self._profile.name} has"
            if self._files.adapters:
                owner = "the adapters are for"
            elif set(self._tasks) < set(self._profile.tasks):
                owner = "the adapter that is merged into the weights is for"
            raise InputError(f"task is {task!r}; {owner} {', '.join(self._tasks)}")
        return task


def _restore(arguments_: dict[str, Any]) -> Embedder:
    return Embedder(**arguments_)


def _restore_pretrained(arguments_: dict[str, Any]) -> Embedder:
    return Embedder.from_pretrained(**arguments_)
