"""Many items through the engine: read ahead, gathered into windows, planned, run, and kept.

An item that fails leaves its place empty or ends the call, as asked; what fails in company
runs again alone, so that each error has its item.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jmm import arguments, batching
from jmm.ahead import map_ahead
from jmm.errors import ContextOverflowError, DecodeError, NonFiniteError
from jmm.pictures import n_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    import numpy.typing as npt

    from jmm.arguments import OnError
    from jmm.kinds import Item, Kind, Sequence
    from jmm.projector import Projector
    from jmm.results import Rows

# One forward pass holds about this many tokens, or one longer item.
BATCH_TOKENS = 2048

# A forward pass has room in the cache for so many times its tokens: sequences start at whole tiles.
CELLS_PER_TOKEN = 2

# So many texts are planned together. A picture's patches stay in memory until it has run, so
# pictures are planned by tokens.
WINDOW_ITEMS = 4096
WINDOW_PICTURE_TOKENS = BATCH_TOKENS

# Most items that are read while others run, and the bytes of pictures at which no more are.
N_AHEAD = 64
BYTES_AHEAD = 2**26

_NOT_FINITE = (
    "the model gave NaN or infinity; the usual cause are F16 weights or activations beyond their "
    "range: try a BF16 or F32 file; `jmm doctor MODEL` with this item as --text or --image "
    "names the layer where it arose"
)


class Engine(Protocol):
    """What runs sequences: `_core.Engine`."""

    n_embd: int
    n_ctx_train: int
    patch_n_elem: int

    @property
    def is_open(self) -> bool:
        """Whether the model is still there."""

    @property
    def max_sequences(self) -> int:
        """Most sequences of a batch."""

    @property
    def max_whole(self) -> int | None:
        """Most tokens that can pass in one forward; None if that is sized by the work."""

    @property
    def undivided(self) -> bool:
        """Whether all tokens of an item must pass in one forward."""

    def check(self) -> None:
        """Raises unless the engine can be used now."""

    def forward(
        self,
        sequences: list[Any],
        spans: list[tuple[int, int]],
        pooled: npt.NDArray[np.float32],
        hidden: npt.NDArray[np.float32] | None = None,
        *,
        tokens: list[npt.NDArray[np.float32]] | None = None,
        projection: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None,
        normalize: bool = True,
        adapter: int = -1,
    ) -> list[bool]:
        """Runs sequences in one batch; tells which gave finite numbers."""


@dataclass(frozen=True)
class Pipeline:
    """The settings of one call.

    Attributes:
        engine: What runs the sequences.
        n_ctx: Most tokens of an item.
        batch_size: Most items of a forward pass.
        on_error: "raise" or "nan".
        adapter: Of the engine, -1 for none.
        projector: For token rows.
        normalize: Brings token rows to unit length.
        window_items: Most items that are gathered before they run.
    """

    engine: Engine
    n_ctx: int
    batch_size: int
    on_error: OnError
    adapter: int = -1
    projector: Projector | None = None
    normalize: bool = True
    window_items: int = WINDOW_ITEMS

    def windows(
        self,
        sources: Iterable[Any],
        kind: Kind,
        *,
        alone: bool = False,
        finish: bool = False,
    ) -> Generator[list[tuple[int, Item | None]], None, None]:
        """Reads items and gathers what is to be planned together.

        Args:
            sources: The items. What the iterable raises passes through.
            kind: What they are.
            alone: There is one item, which no thread need read.
            finish: What was gathered before an error still comes, and then the error.

        Yields:
            Items with their indices, in order; None for one that failed.

        Raises:
            JmmError: An item failed, where ``on_error`` is "raise"; ``index`` tells which.
        """
        window: list[tuple[int, Item | None]] = []
        picture_tokens = 0
        items = map_ahead(
            kind.read,
            sources,
            take=kind.take,
            n_threads=0 if alone else kind.n_threads,
            n_ahead=N_AHEAD,
            weigh=n_bytes,
            max_weight=BYTES_AHEAD,
        )
        with closing(items):
            try:
                for index, item in enumerate(items):
                    placed = self._place(index, item, kind)
                    window.append((index, placed))
                    if placed is not None and placed.sequence.picture_span is not None:
                        picture_tokens += placed.sequence.n_tokens
                    if len(window) >= self.window_items or picture_tokens >= WINDOW_PICTURE_TOKENS:
                        yield window
                        window, picture_tokens = [], 0
            except Exception:
                if finish and window and self.engine.is_open:
                    yield window
                raise
            if window:
                yield window

    def _place(self, index: int, item: Any, kind: Kind) -> Item | None:
        try:
            if isinstance(item, Exception):
                raise item
            placed = kind.place(item)
            self._check_length(placed.sequence)
        except Exception as error:
            self.engine.check()
            arguments.fail(error, index, self.on_error)
            return None
        return placed

    def _check_length(self, sequence: Sequence) -> None:
        if sequence.n_tokens > self.n_ctx:
            advice = ""
            if sequence.picture_span is None:
                advice = "shorten or split the text, or "
            elif self.engine.patch_n_elem:  # a tower of tiles has no limit to set
                advice = "lower max_pixels, or "
            raise ContextOverflowError(
                f"the item has {sequence.n_tokens} tokens and n_ctx is {self.n_ctx}; "
                f"{advice}raise n_ctx (the model allows {self.engine.n_ctx_train})"
            )
        most = self.engine.max_whole
        if most is not None and sequence.n_whole > most:
            raise ContextOverflowError(
                f"{sequence.n_whole} tokens of the item see each other and must pass together, and "
                f"n_batch or n_ubatch is {most}; set both to {sequence.n_whole} or more, or leave "
                "them out"
            )

    def run(
        self,
        window: list[tuple[int, Item | None]],
        rows: Rows,
        advance: Callable[[int], object],
        first: int = 0,
    ) -> None:
        """Runs a window of items.

        Args:
            window: From `windows`.
            rows: Receives the results, at the items' indices less ``first``.
            advance: Called with numbers of finished items.
            first: Index of the item that ``rows`` begins with.
        """
        items = [(index, item) for index, item in window if item is not None]
        n_tokens = [item.sequence.n_tokens for _, item in items]
        rows.reserve([index - first for index, _ in items], n_tokens)
        sizes, limit = n_tokens, BATCH_TOKENS
        if self.engine.undivided:
            limit = min(limit, self.engine.max_whole or limit)
        else:  # a short text takes a whole tile of the cache
            sizes = [
                max(item.sequence.n_tokens, item.sequence.n_cells // CELLS_PER_TOKEN)
                for _, item in items
            ]
        batches = batching.plan(
            sizes,
            max_tokens=limit,
            max_sequences=min(self.batch_size, self.engine.max_sequences),
        )
        advance(len(window) - len(items))
        for batch in batches:
            self._run_batch([items[i] for i in batch], rows, first)
            advance(len(batch))

    def _run_batch(self, batch: list[tuple[int, Item]], rows: Rows, first: int) -> None:
        indices = [index for index, _ in batch]
        places = [index - first for index in indices]
        try:
            pooled = np.empty((len(batch), self.engine.n_embd), np.float32)
            finite = self.forward([item for _, item in batch], pooled, rows.tokens(places))
        except (DecodeError, MemoryError) as error:
            if not self.engine.is_open:
                raise
            if len(batch) == 1:
                arguments.fail(error, indices[0], self.on_error)
            elif isinstance(error, MemoryError):
                half = len(batch) // 2
                self._run_batch(batch[:half], rows, first)
                self._run_batch(batch[half:], rows, first)
            else:
                self._run_alone(batch, rows, first)
            return
        if len(batch) == 1 and not finite[0]:
            arguments.fail(NonFiniteError(_NOT_FINITE), indices[0], self.on_error)
            return
        for place, row, is_finite in zip(places, pooled, finite, strict=True):
            if is_finite:
                rows.keep(place, row)
        failed = [item for item, is_finite in zip(batch, finite, strict=True) if not is_finite]
        self._run_alone(failed, rows, first)

    def _run_alone(self, batch: list[tuple[int, Item]], rows: Rows, first: int) -> None:
        for item in batch:
            self._run_batch([item], rows, first)

    def forward(
        self,
        items: list[Item],
        pooled: npt.NDArray[np.float32],
        tokens: list[npt.NDArray[np.float32]] | None,
        hidden: npt.NDArray[np.float32] | None = None,
    ) -> list[bool]:
        """Runs items in one batch with the call's settings; the arrays are those of `Engine`."""
        projection = None
        if self.projector is not None:
            projection = self.projector.weight, self.projector.bias
        return self.engine.forward(
            [item.sequence for item in items],
            [item.span for item in items],
            pooled,
            hidden,
            tokens=tokens,
            projection=projection,
            normalize=self.normalize,
            adapter=self.adapter,
        )
