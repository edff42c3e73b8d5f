"""The progress bar, where one was asked for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(
    total: int, *, shown: bool, unit: str = "item", label: str | None = None
) -> Iterator[Callable[[int], object]]:
    """Yields a function that counts finished items.

    Args:
        total: Number of items.
        shown: False draws nothing.
        unit: What is counted; bytes, "B", are shown as kB, MB and so on.
        label: What is done, in front of the bar.
    """
    if not shown:
        yield lambda _: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=label, unit=unit, unit_scale=unit == "B") as bar:
        yield bar.update
