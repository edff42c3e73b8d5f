"""The numbers of the model card, as Markdown tables between two marks.

>>> card.fill(text, {"F16": evaluation.measure(encoder, seed=5, n=200)})
"""

from __future__ import annotations

from typing import Any

START, END = "<!-- numbers: written by tools/train_demo.py card -->", "<!-- end of numbers -->"


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _pair(values: list[float] | None) -> str:
    return "not measured" if values is None else f"{values[0]:g} / {values[1]:g}"


def tables(measured: dict[str, dict[str, Any]]) -> str:
    """Recall of each form, then the one-attribute tests of each form.

    Args:
        measured: What `evaluation.measure` gave, by the form's name.
    """
    lines = [
        _row("Recall@1 / @5 in %", *measured),
        _row("---", *["---"] * len(measured)),
    ]
    galleries = [result["gallery"] for result in measured.values()]
    lines.append(_row("single vector", *[_pair(g["single"]) for g in galleries]))
    for width in galleries[0]["widths"]:
        lines.append(
            _row(f"its first {width} components", *[_pair(g["widths"][width]) for g in galleries])
        )
    lines.append(_row("multi-vector, MaxSim", *[_pair(g["multi"]) for g in galleries]))
    for kind in galleries[0]["single_by_kind"]:
        cells = [f"{g['single_by_kind'][kind]:g}" for g in galleries]
        lines.append(_row(f"Recall@1 of kind {kind}", *cells))
    lines += [
        "",
        _row("one thing changed: right in %, single / multi-vector", *measured),
        _row("---", *["---"] * len(measured)),
    ]
    tests = [result["one_attribute"] for result in measured.values()]
    lines += [_row(name, *[_pair(test[name]) for test in tests]) for name in tests[0]]
    return "\n".join(lines)


def fill(text: str, measured: dict[str, dict[str, Any]]) -> str:
    """Puts the tables between the marks of a card.

    Raises:
        ValueError: The card has no marks.
    """
    before, mark, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the card lacks {START!r} or {END!r}")
    return f"{before}{START}\n\n{tables(measured)}\n\n{END}{after}"
