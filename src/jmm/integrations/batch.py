"""Tables in batches: a dict of columns in, the same columns and the vectors out."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from jmm import arguments, runtime
from jmm.arguments import MultiVectors, Options
from jmm.embedder import Embedder
from jmm.errors import InputError, JmmError
from jmm.integrations.rows import encode_each
from jmm.pictures import VisionTokens
from jmm.vision import VisionEncoder

Batch = Mapping[str, Any]
Columns = dict[str, Any]
Model = TypeVar("Model", Embedder, VisionEncoder)

_METHODS = {
    "image": "encode_images",
    "document": "encode_document",
    "query": "encode_query",
    "vision_tokens": "encode_images",
}

# All that live: a forked child loads its own, and finds no lock that another thread held.
_made: weakref.WeakSet[_Rows[Any]] = weakref.WeakSet()


@dataclass(eq=False)
class _Rows(Generic[Model]):
    """What both classes share: the model of this process, and rows that fail alone."""

    _method: ClassVar[str]
    load: Callable[..., Model]
    _: KW_ONLY
    column: str = "image"
    error: str = "error"
    drop: Collection[str] = ()
    workers: int | None = None
    _model: Model | None = field(default=None, init=False, repr=False)
    # Reentrant: a signal may come while its thread loads, and its handler embed a batch.
    _lock: Any = field(default_factory=threading.RLock, init=False, repr=False)

    def __post_init__(self) -> None:
        _made.add(self)
        if not callable(self.load):
            raise InputError(
                f"load is {self.load!r}; what loads the model is needed, such as "
                "functools.partial(Embedder, model, mmproj)"
            )
        if isinstance(self.drop, str) or not isinstance(self.drop, Collection):
            raise InputError(f"drop is {self.drop!r}; a list of columns is needed")
        arguments.count("workers", self.workers)
        for key in ("column", "error", "output", "tokens"):
            if not isinstance(getattr(self, key, ""), str):
                raise InputError(f"{key} is {getattr(self, key)!r}; the name of a column is needed")
        written = self._written()
        for name in written:
            if written.count(name) > 1 or self.column == self.error:
                raise InputError(
                    f"column {name!r} would be written twice: each needs a column of its own"
                )

    def _written(self) -> list[str]:
        """Names of the columns that are added."""
        return [self.error]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
        _made.add(self)

    def _forget(self) -> None:
        """Starts anew, as in a process that has loaded nothing."""
        self._model, self._lock = None, threading.RLock()

    def close(self) -> None:
        """Frees the model; the next batch loads it again."""
        with self._lock:
            if self._model is not None:
                self._model.close()
            self._model = None

    def _loaded(self) -> Model:
        with self._lock:
            if self._model is None:
                share = {}
                if self.workers is not None:
                    share["n_threads"] = max(1, runtime.default_threads() // self.workers)
                loaded = self.load(**share)
                if not hasattr(loaded, self._method):
                    raise InputError(
                        f"load gave {type(loaded).__name__}; a model with {self._method} is needed"
                    )
                if self._model is None:
                    self._model = loaded
                else:  # a signal handler's batch has loaded it meanwhile
                    loaded.close()
            return self._model

    def _drop_lost(self) -> bool:
        """Lets the next batch load the model again, where a failure has cost it."""
        is_lost = self._model is not None and not self._model.is_open
        if is_lost:
            self.close()
        return is_lost

    def _run(self, batch: Batch, encode: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Per row its result or its error; a row that has an error already keeps it."""
        items = self._column(batch, self.column)
        before: list[Any] = [None] * len(items)
        if batch.get(self.error) is not None:
            before = self._column(batch, self.error)
        if len(before) != len(items):
            raise InputError(
                f"column {self.column!r} has {len(items)} rows and {self.error!r} has "
                f"{len(before)}; columns of equal length are needed"
            )
        results: list[Any] = [
            InputError(text) if isinstance(text, str) and text else None for text in before
        ]
        live = [row for row, failed in enumerate(results) if failed is None]
        try:
            found = encode([items[row] for row in live])
        except JmmError:
            self._drop_lost()
            raise
        if self._drop_lost():  # while a row was tried once more
            raise next(result for result in found if isinstance(result, JmmError))
        for row, result in zip(live, found, strict=True):
            results[row] = result
        return results

    def _column(self, batch: Batch, name: str) -> list[Any]:
        if not hasattr(batch, "items"):
            raise InputError(f"a batch is a dict of columns, and this is {type(batch).__name__}")
        if name not in batch:
            raise InputError(
                f"there is no column {name!r}; the batch has {', '.join(map(repr, batch))}"
            )
        if isinstance(batch[name], str | bytes) or not isinstance(batch[name], Iterable):
            raise InputError(f"column {name!r} is {type(batch[name]).__name__}; rows are needed")
        return list(batch[name])

    def _table(self, batch: Batch, results: list[Any], columns: Columns) -> Columns:
        errors = [result.message if isinstance(result, JmmError) else "" for result in results]
        kept = {name: values for name, values in batch.items() if name not in self.drop}
        return {**kept, **columns, self.error: _objects(errors)}


@dataclass(eq=False)
class BatchEmbedder(_Rows[Embedder]):
    """Embeds one column of a table, batch by batch.

    Made for actors that keep it: the model is loaded with the first batch, once per process. It
    pickles by its arguments. A bad row costs itself alone: its text in ``error`` says why, its
    vector is NaN, its tokens are none. A row that comes with such a text is left alone.

    Args:
        load: Gives the Embedder: ``functools.partial(Embedder, model, mmproj)``, or one of
            `Embedder.from_pretrained`. The default loads the built-in model.
        column: The column with the items.
        kind: What they are: "image" (bytes, paths, arrays), "document", "query" (texts), or
            "vision_tokens" (what `BatchVisionEncoder` has written).
        output: Name of the column of vectors.
        tokens: Name of the column of token vectors.
        error: Name of the column that says what is wrong with a row, "" for nothing.
        layout: "rows" gives the token vectors of each row as an array of its own; "packed" gives
            ``values`` and ``offsets`` of `MultiVector` under ``tokens + "_values"`` and
            ``tokens + "_offsets"``, which are not as long as the table.
        drop: Columns that the result leaves out, such as that of the pictures.
        workers: How many of these share the machine: each computes with that part of its cores.
            None leaves ``n_threads`` to ``load``.
        task: See `Embedder.encode_images`; so are all below.
        multi_vector: False for ``output``, True for ``tokens``, "both" for both.
        pool_factor: Keeps one vector for so many tokens.
        truncate_dim: Components to keep.
        batch_size: Most items per forward pass.

    Raises:
        InputError: An argument is not allowed.

    Example:
        >>> import numpy as np
        >>> embed = BatchEmbedder(column="page")
        >>> table = embed({"page": [np.zeros((56, 84, 3), np.uint8), b"no picture"]})
        >>> table["vector"].shape, np.isnan(table["vector"]).all(axis=1)
        ((2, 256), array([False,  True]))
        >>> table["error"][0], bool(table["error"][1])
        ('', True)
    """

    _method = "encode_images"
    load: Callable[..., Embedder] = Embedder
    _: KW_ONLY
    kind: Literal["image", "document", "query", "vision_tokens"] = "image"
    output: str = "vector"
    tokens: str = "tokens"
    layout: Literal["rows", "packed"] = "rows"
    task: str | None = None
    multi_vector: MultiVectors = False
    pool_factor: int | None = None
    truncate_dim: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (("kind", tuple(_METHODS)), ("layout", ("rows", "packed"))):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; allowed are "
                    f"{', '.join(map(repr, allowed))}"
                )
        if self.kind == "query" and self.pool_factor is not None:
            raise InputError("pool_factor is for documents and pictures; the kind is 'query'")
        Options(
            multi_vector=self.multi_vector,
            truncate_dim=self.truncate_dim,
            batch_size=self.batch_size,
            pool_factor=self.pool_factor,
        )

    def __call__(self, batch: Batch) -> Columns:
        """Embeds a batch.

        Args:
            batch: Columns of equal length by name: arrays or lists.

        Returns:
            The batch's columns less ``drop``, and: ``output`` float32 ``[n, dim]``, ``tokens`` an
            object array of float32 ``[n_tokens, multi_vector_dim]`` (or packed), ``error`` an
            object array of str.

        Raises:
            InputError: There is no such column, or an option does not fit the model.
            ModelLoadError: The model cannot be loaded.
            DecodeError: The model failed for good; the next batch loads it again.
        """
        embedder = self._loaded()
        results = self._run(batch, lambda items: self._encode(embedder, items))
        columns: Columns = {}
        if self.multi_vector is not True:
            dim = self.truncate_dim or embedder.dim
            columns[self.output] = np.full((len(results), dim), np.nan, np.float32)
            for row, result in enumerate(results):
                if not isinstance(result, JmmError):
                    columns[self.output][row] = result[0]
        if self.multi_vector:
            columns |= self._token_columns(results, embedder.multi_vector_dim)
        return self._table(batch, results, columns)

    def _written(self) -> list[str]:
        ends = [""] if self.layout == "rows" else ["_values", "_offsets"]
        pooled = [] if self.multi_vector is True else [self.output]
        tokens = [self.tokens + end for end in ends] if self.multi_vector else []
        return [*super()._written(), *pooled, *tokens]

    def _token_columns(self, results: list[Any], dim: int | None) -> Columns:
        good = [result[1] for result in results if not isinstance(result, JmmError)]
        none = np.zeros((0, good[0].shape[1] if good else dim or 1), np.float32)
        rows = [none if isinstance(result, JmmError) else result[1] for result in results]
        if self.layout == "rows":
            return {self.tokens: _objects(rows)}
        return {
            f"{self.tokens}_values": np.concatenate([none, *rows]),
            f"{self.tokens}_offsets": np.cumsum([0, *map(len, rows)], dtype=np.int64),
        }

    def _encode(self, embedder: Embedder, items: list[Any]) -> list[Any]:
        """Per item ``(vector, token vectors)``, of which one may be None, or the error."""
        options: dict[str, Any] = {
            "task": self.task,
            "multi_vector": self.multi_vector,
            "truncate_dim": self.truncate_dim,
            "batch_size": self.batch_size,
        }
        if self.pool_factor is not None:
            options["pool_factor"] = self.pool_factor
        method = getattr(embedder, _METHODS[self.kind])

        def encode(part: list[Any], on_error: str) -> list[Any]:
            found = method(part, on_error=on_error, **options)
            if self.multi_vector == "both":
                return list(zip(found.pooled, found.tokens, strict=True))
            return [(None, row) if self.multi_vector else (row, None) for row in found]

        read = [self._read(item) for item in items]
        good = [item for item in read if not isinstance(item, JmmError)]
        results = iter(encode_each(encode, good, _is_missing))
        return [item if isinstance(item, JmmError) else next(results) for item in read]

    def _read(self, item: Any) -> Any:
        if self.kind != "vision_tokens":
            return item
        try:
            return VisionTokens.from_bytes(item)
        except InputError as error:
            return error


@dataclass(eq=False)
class BatchVisionEncoder(_Rows[VisionEncoder]):
    """Runs one column of pictures through the vision tower alone, batch by batch.

    The first of two stages: workers with `BatchEmbedder` of kind "vision_tokens" and an
    ``Embedder(model, mmproj, load_vision=False)`` are the second. Rows fail alone, as there.

    Args:
        load: Gives the VisionEncoder: ``functools.partial(VisionEncoder, mmproj)``.
        column: The column with the pictures.
        output: Name of the column of `VisionTokens.to_bytes`; b"" for a row that failed.
        error: Name of the column that says what is wrong with a row.
        drop: Columns that the result leaves out.
        workers: How many of these share the machine.

    Example:
        >>> import functools
        >>> import numpy as np
        >>> from jmm import demo
        >>> encode = BatchVisionEncoder(functools.partial(VisionEncoder, demo.paths()[1]))
        >>> table = encode({"image": np.zeros((2, 56, 84, 3), np.uint8)})
        >>> VisionTokens.from_bytes(table["vision_tokens"][1])
        VisionTokens(tokens=12, dim=256, grid=6x8)
    """

    _method = "encode"
    _: KW_ONLY
    output: str = "vision_tokens"

    def _written(self) -> list[str]:
        return [*super()._written(), self.output]

    def __call__(self, batch: Batch) -> Columns:
        """Encodes a batch.

        Args:
            batch: Columns of equal length by name.

        Returns:
            The batch's columns less ``drop``, ``output`` as an object array of bytes, and
            ``error``.

        Raises:
            InputError: There is no such column.
            ModelLoadError: The tower cannot be loaded.
        """
        encoder = self._loaded()
        results = self._run(
            batch, lambda items: encode_each(encoder.encode, items, lambda found: found is None)
        )
        data = [b"" if isinstance(result, JmmError) else result.to_bytes() for result in results]
        return self._table(batch, results, {self.output: _objects(data)})


def _is_missing(result: tuple[npt.NDArray[np.float32] | None, Any]) -> bool:
    pooled, tokens = result
    return bool(np.isnan(pooled).any()) if pooled is not None else len(tokens) == 0


def _objects(values: list[Any]) -> npt.NDArray[np.object_]:
    """An array with one element per value, whatever the values are."""
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def _forget_all() -> None:
    for made in list(_made):
        made._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
