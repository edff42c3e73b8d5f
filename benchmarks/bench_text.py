"""What does a text cost, alone and with others, beside PyTorch and stock llama.cpp?

    python benchmarks/bench_text.py [--engines jmm:f16 torch:f32] [--tokens 20] [--together 64]

First single texts of so many tokens, then many short ones, given to each engine in calls of
several sizes: one by one, all together, and between. The best size of each engine counts. Last,
for jmm alone, texts of 1 to 64 tokens: one call for all, and one for each.
"""

from __future__ import annotations

import itertools
from typing import Any

from common import flops, options, table
from common.shape import parse_layers, true_width
from common.team import Job, Worker, close_all, in_turns, warm_up

ENGINES = ["jmm:f16", "jmm:q8_0", "jmm:q4_k_m", "torch:bf16", "torch:f32", "stock:f16"]
TOKENS = [1, 8, 20, 64, 256, 512, 1000, 2000]
BATCHES = [1, 4, 16, 64]
LONGEST = 64


def operations(layers: str, n_texts: int, n_tokens: int) -> int:
    return n_texts * flops.language(true_width(parse_layers(layers)), n_tokens)


def measure(
    workers: list[Worker], n_texts: int, n_tokens: int, batch: int, repeats: int
) -> dict[str, Any]:
    """Repetitions of all engines, ``batch`` texts in a call."""
    request = {"op": "texts", "n_texts": n_texts, "n_tokens": n_tokens, "batch": batch}
    jobs: list[Job] = [(worker, request) for worker in workers]
    alive, _ = warm_up(jobs)
    return {
        "n_texts": n_texts,
        "n_tokens": n_tokens,
        "batch": batch,
        "repetitions": in_turns(alive, repeats),
    }


def measure_mixed(
    workers: list[Worker], n_texts: int, longest: int, repeats: int
) -> dict[str, Any]:
    """Repetitions of jmm's engines, each with all texts in one call and one by one."""
    request = {"op": "mixed", "n_texts": n_texts, "longest": longest}
    alive, _ = warm_up([(worker, request) for worker in workers if worker.name.startswith("jmm")])
    answers = in_turns(alive, repeats)
    for answer in itertools.chain.from_iterable(answers.values()):
        del answer["vectors"]  # which `warm_up` alone asks for
    return {"n_texts": n_texts, "longest": longest, "repetitions": answers}


def mixed(report: dict[str, Any]) -> str:
    """Seconds for all texts, and how many times as long they take one by one."""
    case = report["mixed"]
    rows = []
    for name, answers in case["repetitions"].items():
        wall, busy = (
            [table.median(answers, f"{way}{field}") for way in ("together", "alone")]
            for field in ("", "_processor")
        )
        if None in wall:
            rows.append([name, *["-"] * 6])
            continue
        cells = [[*map(table.number, pair), f"{pair[1] / pair[0]:.2f}"] for pair in (wall, busy)]
        rows.append([name, *cells[0], *cells[1]])
    title = f"{case['n_texts']} texts of 1 to {case['longest']} tokens, seconds for all"
    columns = ["", "one call", "one by one", "ratio", "CPU: one call", "one by one", "ratio"]
    return f"{title}\n\n{table.markdown(columns, rows)}"


def singles(report: dict[str, Any]) -> str:
    """Milliseconds per text: a row per engine, a column per length."""
    cases = [case for case in report["cases"] if case["n_texts"] == 1]
    rows = [
        [name, *(table.number(_milliseconds(case, name)) for case in cases)]
        for name in report["engines"]
    ]
    columns = ["one text of ... tokens, ms", *(str(case["n_tokens"]) for case in cases)]
    return table.markdown(columns, rows)


def together(report: dict[str, Any]) -> str:
    """Milliseconds per text when many are given: a row per engine, a column per batch size."""
    cases = [case for case in report["cases"] if case["n_texts"] > 1]
    columns = ["texts in a call", *(str(case["batch"]) for case in cases), "texts/s at best"]
    rows = []
    for name in report["engines"]:
        times = [_milliseconds(case, name) for case in cases]
        best = min((value for value in times if value is not None), default=None)
        rows.append([name, *map(table.number, times), table.number(1e3 / best if best else None)])
    first = cases[0]
    title = f"{first['n_texts']} texts of {first['n_tokens']} tokens each, ms per text"
    return f"{title}\n\n{table.markdown(columns, rows)}"


def _milliseconds(case: dict[str, Any], name: str) -> float | None:
    total = table.median(case["repetitions"].get(name, []), "total")
    return None if total is None else total / case["n_texts"] * 1e3


def tables(report: dict[str, Any]) -> str:
    counts = [case["n_texts"] for case in report["cases"]]
    parts = [singles] * (1 in counts) + [together] * (max(counts, default=1) > 1)
    parts += [mixed] * ("mixed" in report)
    return "\n\n".join(part(report) for part in parts)


def main() -> None:
    parser = options.parser(__doc__, ENGINES)
    options.add_device(parser)
    parser.add_argument("--tokens", nargs="*", type=int, default=TOKENS, help="of single texts")
    parser.add_argument("--together", type=int, default=64, help="short texts; 0 to leave them out")
    parser.add_argument("--short", type=int, default=20, help="tokens of a short text")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--mixed", type=int, default=64, help="texts of 1 to 64 tokens; 0 for none")
    arguments = parser.parse_args()
    workers = options.start_all(arguments)
    report = options.report(arguments, "text", workers) | {"cases": []}
    plan = [(1, n_tokens, 1) for n_tokens in arguments.tokens]
    if arguments.together:
        sizes = sorted({min(batch, arguments.together) for batch in arguments.batches})
        plan += [(arguments.together, arguments.short, batch) for batch in sizes]
    for n_texts, n_tokens, batch in plan:
        case = measure(workers, n_texts, n_tokens, batch, arguments.repeats)
        case["operations"] = operations(arguments.layers, n_texts, n_tokens)
        report["cases"].append(case)
        options.keep(arguments, report)
    if arguments.mixed:
        report["mixed"] = measure_mixed(workers, arguments.mixed, LONGEST, arguments.repeats)
        options.keep(arguments, report)
    print(tables(report))
    close_all(workers)


if __name__ == "__main__":
    main()
