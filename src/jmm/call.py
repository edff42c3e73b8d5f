"""One call of an encode method: its settings, checked, and the way from items to vectors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from jmm import vectors
from jmm.progress import progress_bar
from jmm.results import PooledRows, TokenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jmm.arguments import Options
    from jmm.kinds import Kind
    from jmm.pipeline import Pipeline

# An NDArray, or a MultiVector with multi_vector=True: to a type checker a union of the two would
# make an error of every use.
Vectors: TypeAlias = Any


@dataclass(frozen=True)
class Call:
    """What all items of one call share.

    Attributes:
        pipeline: Runs the items.
        kind: What they are.
        dim: Components of a vector, or of a token's.
        n_components: Of those that a vector keeps.
        options: What the caller asked for.
    """

    pipeline: Pipeline
    kind: Kind
    dim: int
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
        return result[0] if one else result

    def stream(
        self, items: Iterable[Any], picker: Callable[[Any], Any] | None
    ) -> Iterator[Vectors]:
        """Embeds the part that ``picker`` takes of each item, as it is asked for."""
        kind = self.kind.of_part(picker)
        with closing(self.pipeline.windows(items, kind, finish=True)) as windows:
            for window in windows:
                rows = self._rows(len(window))
                self.pipeline.run(window, rows, lambda _: None, first=window[0][0])
                yield from self._finish(rows)

    def _rows(self, n: int) -> PooledRows | TokenRows:
        kind = TokenRows if self.options.multi_vector else PooledRows
        return kind(n, self.dim)

    def _finish(self, rows: PooledRows | TokenRows) -> Vectors:
        options = self.options
        if isinstance(rows, TokenRows):
            tokens = rows.result()
            factor = options.pool_factor
            return tokens if factor is None else vectors.pool_tokens(tokens, factor)
        finished = vectors.finish(rows.values, self.n_components, normalize=options.normalize)
        return vectors.quantize(finished, options.precision, options.ranges)
