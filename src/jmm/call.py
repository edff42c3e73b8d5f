"""One call of an encode method: its settings, checked, and the way from items to vectors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from jmm import arguments, vectors
from jmm.errors import OutOfMemoryError
from jmm.progress import progress_bar
from jmm.results import BothRows, BothVectors, PooledRows, TokenRows
from jmm.vectors import MultiVector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jmm.arguments import Options
    from jmm.kinds import Kind
    from jmm.pipeline import Pipeline

# An NDArray, a MultiVector or BothVectors: to a type checker a union of them would make an error of
# every use.
Vectors: TypeAlias = Any


@dataclass(frozen=True)
class Call:
    """What all items of one call share.

    Attributes:
        pipeline: Runs the items.
        kind: What they are.
        n_components: Components that a pooled vector keeps.
        options: What the caller asked for.
    """

    pipeline: Pipeline
    kind: Kind
    n_components: int
    options: Options

    def whole(self, sources: Sequence[Any], *, one: bool) -> Vectors:
        """Embeds all items; of one item its vector alone."""
        rows = self._rows(len(sources))
        alone = len(sources) == 1
        with (
            progress_bar(len(sources), shown=bool(self.options.show_progress)) as advance,
            closing(self.pipeline.windows(sources, self.kind, alone=alone)) as windows,
        ):
            for window in windows:
                self.pipeline.run(window, rows, advance)
        result = self._finish(rows)
        if not one:
            return result
        return next(_each(result))

    def stream(
        self, items: Iterable[Any], picker: Callable[[Any], Any] | None
    ) -> Iterator[Vectors]:
        """Embeds the part that ``picker`` takes of each item, as it is asked for."""
        kind = self.kind.of_part(picker)
        with closing(self.pipeline.windows(items, kind, finish=True)) as windows:
            for window in windows:
                rows = self._rows(len(window))
                first = window[0][0]
                self.pipeline.run(window, rows, lambda _: None, first)
                yield from _each(self._finish(rows, first))

    def _rows(self, n: int) -> PooledRows | TokenRows | BothRows:
        pipeline = self.pipeline
        if pipeline.projector is None:
            return PooledRows(n, pipeline.engine.n_embd)
        token_rows = TokenRows(n, pipeline.projector.dim)
        if self.options.multi_vector == "both":
            return BothRows(PooledRows(n, pipeline.engine.n_embd), token_rows)
        return token_rows

    def _finish(self, rows: PooledRows | TokenRows | BothRows, first: int = 0) -> Vectors:
        options = self.options
        if isinstance(rows, BothRows):
            return BothVectors(self._finish(rows.pooled), self._finish(rows.token_rows, first))
        if isinstance(rows, TokenRows):
            return self._pooled(rows.result(), first)
        finished = vectors.finish(rows.values, self.n_components, normalize=options.normalize)
        return vectors.quantize(finished, options.precision, options.ranges)

    def _pooled(self, tokens: MultiVector, first: int) -> MultiVector:
        """Fewer tokens per item, if they are wanted; ``first`` is the first item's index."""
        factor = self.options.pool_factor
        if factor is None or len(tokens) == 0:
            return tokens
        items = []
        for place, rows in enumerate(tokens):
            try:
                items.append(vectors.pool_tokens(rows, factor) if len(rows) else rows)
            except OutOfMemoryError as error:
                arguments.fail(error, first + place, self.options.on_error)
                items.append(rows[:0])
        return MultiVector.from_list(items)


def _each(result: Vectors) -> Iterator[Vectors]:
    """The vectors of each item."""
    if isinstance(result, BothVectors):
        return map(BothVectors, result.pooled, result.tokens)
    return iter(result)
