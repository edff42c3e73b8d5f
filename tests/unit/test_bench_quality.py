"""The quality benchmark: sets, queries, intervals, tables; with mteb, scores worked out by hand."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_quality  # noqa: E402
from quality import collection, intervals, pages, texts  # noqa: E402
from quality.collection import Collection, CollectionError  # noqa: E402

needs_mteb = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason="needs: pip install 'jmm[bench]'"
)


def write_set(folder: Path, **tables: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        pages.write(folder / f"{name}.jsonl", rows)
    return folder


def small_set(folder: Path, **changes: list[dict[str, Any]]) -> Path:
    tables = {
        "corpus": [{"corpus-id": 7, "text": "a page", "doc-id": "x"}, {"_id": "b", "text": "more"}],
        "queries": [{"query-id": 1, "query": "which page?"}, {"_id": "2", "text": "and more?"}],
        "qrels": [
            {"query-id": 1, "corpus-id": 7, "score": 1},
            {"query-id": 1, "corpus-id": "b", "score": 0},
            {"query-id": "2", "corpus-id": "b", "score": 2},
        ],
    }
    return write_set(folder, **(tables | changes))


def test_tables_are_read(tmp_path: Path) -> None:
    found = collection.read(small_set(tmp_path / "name"))
    assert found == Collection(
        "name",
        queries={"1": "which page?", "2": "and more?"},
        texts={"7": "a page", "b": "more"},
        qrels={"1": {"7": 1, "b": 0}, "2": {"b": 2}},
    )
    assert found.shortened(3).texts == {"7": "a p", "b": "mor"}
    assert found.thinned(1).queries == {"1": "which page?"}
    assert found.thinned(1).qrels == {"1": {"7": 1, "b": 0}}
    assert found.thinned(None) == found


def test_picture_files(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"png")
    corpus = [{"corpus-id": "7", "image": "p.png"}, {"corpus-id": "b", "image": "p.png"}]
    found = collection.read(small_set(tmp_path, corpus=corpus))
    assert found.images["7"] == {"bytes": None, "path": str(tmp_path / "p.png")}
    assert found.texts == {}


def test_rows_of_pairs_are_pages_and_queries(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"png")
    rows = [
        {"query": "one?", "image": "p.png", "image_filename": "a.png"},
        {"query": "two?", "image": "p.png", "image_filename": "a.png"},
        {"query": "one?", "image": "p.png", "image_filename": "b.png"},
        {"query": None, "image": "p.png", "image_filename": "c.png"},
    ]
    found = collection.read(write_set(tmp_path, test=rows))
    assert list(found.images) == ["a.png", "b.png", "c.png"]
    assert found.queries == {"q0": "one?", "q1": "two?"}
    assert found.qrels == {"q0": {"a.png": 1, "b.png": 1}, "q1": {"a.png": 1}}


def test_parquet_as_datasets_writes_it(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    tables = {
        "corpus": [{"corpus-id": 7, "image": {"bytes": b"png", "path": "x.png"}}],
        "queries": [{"query-id": 1, "query": "which page?"}],
        "qrels": [{"query-id": 1, "corpus-id": 7, "score": 1}],
    }
    for name, rows in tables.items():
        (tmp_path / name).mkdir()
        path = tmp_path / name / "test-00000-of-00001.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    found = collection.read(tmp_path)
    assert found.images == {"7": {"bytes": b"png", "path": None}}
    assert found.qrels == {"1": {"7": 1}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"corpus": [{"corpus-id": "7", "text": "x"}] * 2}, "page '7' occurs twice"),
        ({"queries": [{"query-id": "1", "query": "x"}] * 2}, "query '1' occurs twice"),
        ({"qrels": [{"query-id": "1", "corpus-id": "x", "score": 1}]}, "no page 'x'"),
        ({"qrels": [{"query-id": "x", "corpus-id": "b", "score": 1}]}, "no query 'x'"),
        ({"qrels": [{"query-id": "1", "corpus-id": "b", "score": 0}]}, "2 queries have no"),
        ({"queries": [{"query-id": "1"}]}, "query or text is needed"),
        ({"corpus": [{"corpus-id": "7", "image": "none.png"}]}, "no picture"),
        ({"corpus": []}, "0 pages"),
    ],
)
def test_refused_sets(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=said):
        collection.read(small_set(tmp_path, **changes))


def test_folder_without_tables(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"no corpus\.jsonl"):
        collection.read(tmp_path)


def test_pages_are_either_all_pictures_or_none(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"png")
    corpus = [{"corpus-id": "7", "image": "p.png"}, {"corpus-id": "b", "text": "x"}]
    with pytest.raises(CollectionError, match="'b' is not among the images"):
        collection.read(small_set(tmp_path, corpus=corpus))


def test_what_is_embedded(tmp_path: Path) -> None:
    found = collection.read(small_set(tmp_path))
    assert found.items("texts") == {"7": "a page", "b": "more"}
    with pytest.raises(CollectionError, match="no images"):
        found.items("images")
    found.texts["b"] = " \n"
    with pytest.raises(CollectionError, match="1 pages have a blank text, 'b'"):
        found.items("texts")


# --- queries from the pages' text ---


def test_clean() -> None:
    read = "A de\x1cnition of an e\x1bect\r\nthat is docu\x02\r\nmented, well-\r\nknown: R-\r\nX"
    assert texts.clean(read) == "A definition of an effect\nthat is documented, wellknown: R-\nX"


PROSE = (
    "cut off here. The survival curve of the control group falls faster than all others do. "
    "It does. x <- lm(y ~ a + b, data = d) and then summary(x) gives $r and %in% things. Then it"
)


def test_candidates_are_headings_and_prose() -> None:
    page = f"3.2 Curves of the groups\n3.3 x <- f(y) + z[1]\nThe end\n{PROSE}"
    assert list(texts.candidates(page)) == [
        ("heading", "Curves of the groups"),
        ("sentence", "The survival curve of the control group falls faster than all others do."),
    ]


def test_query_is_true_for_one_page() -> None:
    sentence = "The survival curve of the control group falls faster than all others do."
    near = "as the survival curve of the control group falls quickly"
    unique = texts.Uniqueness({"a": PROSE, "b": "Nothing of the kind."})
    assert unique(sentence, "a")
    assert not unique(sentence, "b")
    assert not texts.Uniqueness({"a": PROSE, "b": f"SURVIVAL... {sentence}"})(sentence, "a")
    # 5 of its 10 runs of four words
    assert not texts.Uniqueness({"a": PROSE, "b": near})(sentence, "a")
    assert texts.Uniqueness({"a": PROSE, "b": "the control group falls often"})(sentence, "a")


def test_choice_is_seeded_and_page_by_page() -> None:
    bodies = {
        f"p{i}": "Cut. " + " ".join(
            f"On page {word} the {word} reader of {word} learns about {other} in {word} here."
            for other in ("apples", "bridges", "clouds", "dragons")
        ) + " Cut."
        for i, word in enumerate(("alpha", "beta", "gamma", "delta", "epsilon"))
    }  # fmt: skip
    chosen = texts.choose(bodies, seed=1)
    assert chosen == texts.choose(bodies, seed=1)
    assert [query.page for query in chosen] == sorted(bodies)
    assert all(query.text in bodies[query.page] for query in chosen)
    fewer = {page: bodies[page] for page in ("p0", "p3")}
    assert [q for q in chosen if q.page in fewer] == texts.choose(fewer, seed=1)
    assert len({tuple(q.text for q in texts.choose(bodies, seed=s)) for s in range(8)}) > 1
    assert len(texts.choose(bodies, sentences=3)) == 15


# --- intervals and tables ---


def binomial_quantile(n: int, p: float, q: float) -> float:
    """The exact one of the mean of n draws of 0 or 1."""
    total, k = 0.0, -1
    while total < q:
        k += 1
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
    return k / n


@pytest.mark.parametrize(("ones", "n"), [(12, 40), (1, 25), (150, 300)])
def test_interval_of_zeros_and_ones_is_the_binomial(ones: int, n: int) -> None:
    values = np.array([1.0] * ones + [0.0] * (n - ones))
    low, high = intervals.interval(values)
    assert low == pytest.approx(binomial_quantile(n, ones / n, 0.025), abs=1.01 / n)
    assert high == pytest.approx(binomial_quantile(n, ones / n, 0.975), abs=1.01 / n)


def test_interval_without_spread_has_no_width() -> None:
    assert intervals.interval(np.full(9, 0.25)) == (0.25, 0.25)


def kept_row(model: str, vectors: str, values: list[float], ranking: list[str]) -> dict[str, Any]:
    return {
        "model": model,
        "vectors": vectors,
        "info": {"bytes": 2_500_000},
        "dim": 64,
        "vectors_per_page": 1.0,
        "means": {"nDCG@5": float(np.mean(values))},
        "intervals": {"nDCG@5": [0.1, 0.9]},
        "per_query": {"nDCG@5": values},
        "ranking": {"q0": ranking, "q1": ["a", "b"]},
    }


def test_differences_are_paired_with_equal_vectors() -> None:
    rows = [
        kept_row("ref", "single", [1.0, 0.0], ["a", "b"]),
        kept_row("ref", "multi", [0.5, 0.5], ["a", "b"]),
        kept_row("q8", "single", [0.5, 0.5], ["a", "b"]),
        kept_row("q8", "multi", [0.25, 0.25], ["b", "a"]),
    ]
    bench_quality.compare(rows, seed=0)
    assert "baseline" not in rows[0]
    assert "baseline" not in rows[1]
    # -0.5 and +0.5: all resamples lie between
    assert rows[2]["differences"]["nDCG@5"] == [0.0, -0.5, 0.5]
    assert rows[2]["same_ten"] == 1.0
    assert rows[3]["differences"]["nDCG@5"] == [-0.25, -0.25, -0.25]
    assert rows[3]["same_ten"] == 0.5
    lines = [line.replace(" ", "") for line in bench_quality.tables({"rows": rows}).splitlines()]
    assert "|ref|single|2.5|1x64|0.500(0.100to0.900)|" in lines
    assert "|q8-ref|multi|-0.250(-0.250to-0.250)|50.0%|" in lines


def test_runs() -> None:
    words = ["q8", "text.gguf", "mmproj.gguf", "max_pixels=200704", "profile=qwen2.5-vl"]
    options = {"max_pixels": 200704, "profile": "qwen2.5-vl"}
    assert bench_quality.parse_run(words) == ("q8", ["text.gguf", "mmproj.gguf"], options)
    assert bench_quality.parse_run(["demo"]) == ("demo", [], {})
    for wrong in (["a", "b", "c", "d"], ["a", "x=1", "b"]):
        with pytest.raises(ValueError, match="--run"):
            bench_quality.parse_run(wrong)


def test_rows_of_another_set_are_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"set": {"fingerprint": "x"}, "rows": [1]}))
    assert bench_quality.kept_rows([kept], "x") == [1]
    with pytest.raises(CollectionError, match="another set"):
        bench_quality.kept_rows([kept], "y")


# --- with mteb, in a process of its own: it imports packages that other tests replace ---

SCORED = """
import json, sys
from pathlib import Path
import numpy as np
from jmm import MultiVector
from quality import collection, task

RANKS = json.loads(sys.argv[2])
N = 12
scores = np.zeros((len(RANKS), N), np.float32)
for query, order in enumerate(RANKS):
    scores[query, order] = np.linspace(0.9, 0.1, N)
names = [f"text {i}" for i in range(N)]

class Hand:
    def queries(self, texts, *, multi_vector):
        rows = scores[[int(text.split()[-1]) for text in texts]]
        return MultiVector.from_list([row[None] for row in rows]) if multi_vector else rows
    def documents(self, items, *, multi_vector):
        rows = np.eye(N, dtype=np.float32)[[names.index(item) for item in items]]
        if not multi_vector:
            return rows
        return MultiVector.from_list([np.stack([row, -row]) for row in rows])

pages = collection.read(Path(sys.argv[1]))
for multi in (False, True):
    out = task.evaluate(pages, Hand(), items="texts", multi_vector=multi, batch=4)
    per_query = {name: values.tolist() for name, values in out.per_query.items()}
    print(json.dumps([out.means, per_query, out.ranking, out.dim, out.tokens]))
"""


def run_python(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_mteb
def test_scores_by_hand(tmp_path: Path) -> None:
    # The relevant page of each query stands at rank 1, 2, 6 and 11; the fifth query has two.
    orders = [
        [0, *range(1, 12)],
        [1, 0, *range(2, 12)],
        [1, 2, 3, 4, 5, 0, *range(6, 12)],
        [*range(1, 11), 0, 11],
        [9, 8, *range(8), 10, 11],
    ]
    qrels = [{"query-id": f"q{i}", "corpus-id": "p00", "score": 1} for i in range(4)]
    qrels += [
        {"query-id": "q4", "corpus-id": "p08", "score": 2},
        {"query-id": "q4", "corpus-id": "p09", "score": 1},
    ]
    folder = write_set(
        tmp_path,
        corpus=[{"corpus-id": f"p{i:02}", "text": f"text {i}"} for i in range(12)],
        queries=[{"query-id": f"q{i}", "query": f"query {i}"} for i in range(5)],
        qrels=qrels,
    )
    third, seventh = 1 / math.log2(3), 1 / math.log2(7)
    swapped = (1 + 2 * third) / (2 + third)
    right = {
        "nDCG@5": [1, third, 0, 0, swapped],
        "nDCG@10": [1, third, seventh, 0, swapped],
        "recall@1": [1, 0, 0, 0, 0.5],
        "recall@5": [1, 1, 0, 0, 1],
        "recall@10": [1, 1, 1, 0, 1],
    }
    lines = run_python("-c", SCORED, str(folder), json.dumps(orders))
    for line, tokens in zip(lines, (1, 2), strict=True):
        means, per_query, ranking, dim, per_page = json.loads(line)
        assert (dim, per_page) == (12, tokens)
        for metric, values in right.items():
            assert per_query[metric] == pytest.approx(values, abs=1e-9)
            assert means[metric] == pytest.approx(np.mean(values), abs=1e-5)
        assert ranking["q4"] == [f"p{i:02}" for i in orders[4][:10]]


@needs_mteb
def test_program_on_pictures(tmp_path: Path) -> None:
    from PIL import Image

    from jmm import Embedder

    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (56, 84, 3), np.uint8)) for _ in range(3)]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    queries = [f"picture number {i}" for i in range(5)]
    folder = write_set(
        tmp_path,
        corpus=[{"corpus-id": f"p{i}", "image": f"{i}.png"} for i in range(3)],
        queries=[{"query-id": f"q{i}", "query": text} for i, text in enumerate(queries)],
        qrels=[{"query-id": f"q{i}", "corpus-id": f"p{i % 3}", "score": 1} for i in range(5)],
    )
    output = tmp_path / "out.json"
    lines = run_python(
        *("bench_quality.py", str(folder), "--run", "demo", "--run", "again", "n_threads=1"),
        *("--output", str(output)),
    )
    with Embedder() as embedder:
        best = (embedder.encode_query(queries) @ embedder.encode_images(pictures).T).argmax(1)
    report = json.loads(output.read_text())
    first, second = report["rows"]
    assert first["means"]["recall@1"] == pytest.approx(np.mean(best == np.arange(5) % 3))
    assert first["means"]["recall@5"] == 1
    assert (first["dim"], first["vectors_per_page"]) == (256, 1)
    assert second["same_ten"] == 1
    assert report["set"]["queries"] == 5
    assert report["build_info"]["llama_cpp"]
    assert lines[0].split("|")[1].strip() == "model"
    assert str(tmp_path) not in json.dumps(report)


ODD = """
import argparse, json, sys
import jmm
import bench_quality
from quality import task

arguments = argparse.Namespace(vectors=["multi"], items="texts", batch=1, seed=0)
task.evaluate = lambda pages, retriever, **_: retriever.queries()

def attempt(error, at):
    class Hand:
        def queries(self): raise error("odd")
        def close(self): closed.append(True)

    def make():
        if at == "load":
            raise error("odd")
        return Hand()

    closed = []
    try:
        outcome = bench_quality.measure(arguments, None, "it", make)
    except Exception as raised:
        outcome = type(raised).__name__
    return [outcome, len(closed)]

for name, at in json.loads(sys.argv[1]):
    error = getattr(task, name, None) or getattr(jmm, name, None) or getattr(__builtins__, name)
    print(json.dumps(attempt(error, at)))
"""


@needs_mteb
def test_what_is_left_out() -> None:
    """What a model cannot is a note, what it refuses an error, and anything else is raised."""
    outcomes = {
        ("NoProjector", "call"): [[], []],
        ("InputError", "call"): [[], ["left out: it, multi: InputError: odd"]],
        ("TypeError", "call"): "TypeError",
        ("ValueError", "call"): "ValueError",
        ("NoModel", "load"): [[], ["left out: it: NoModel: odd"]],
        ("ModelLoadError", "load"): [[], ["left out: it: ModelLoadError: odd"]],
        ("TypeError", "load"): "TypeError",
    }
    lines = run_python("-c", ODD, json.dumps(list(outcomes)))
    for line, ((_, at), outcome) in zip(lines, outcomes.items(), strict=True):
        assert json.loads(line) == [outcome, int(at == "call")]


@needs_mteb
def test_a_run_that_was_left_out_is_a_failure(tmp_path: Path) -> None:
    folder = small_set(tmp_path / "set")
    words = ["bench_quality.py", str(folder), "--items", "texts", "--run", "demo"]
    (first, *_) = run_python(*words)
    assert first.startswith("| model")
    words += ["--run", "none", str(tmp_path / "none.gguf")]
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 1
    assert "left out: none: ModelLoadError" in done.stderr
    assert done.stdout.startswith("| model")
