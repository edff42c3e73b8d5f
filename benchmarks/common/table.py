"""Tables of text and Markdown, and the medians in them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def median(answers: Sequence[dict[str, Any]], name: str) -> float | None:
    """The median of one field over the repetitions, None where an engine does not tell it."""
    values = [answer[name] for answer in answers if answer.get(name) is not None]
    return statistics.median(values) if values else None


def number(value: float | None, digits: int = 3) -> str:
    """``digits`` significant ones, without an exponent; "-" for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    before = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{max(0, digits - before)}f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of even width: the first to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    edges = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(columns), line(edges), *map(line, rows)])
