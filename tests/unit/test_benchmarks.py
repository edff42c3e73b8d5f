"""The benchmarks' own logic: counts, layouts, turns and tables. Nothing is timed here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_checkpoint  # noqa: E402
import bench_finite  # noqa: E402
import bench_image  # noqa: E402
import bench_load  # noqa: E402
import bench_maxsim  # noqa: E402
import bench_preprocess  # noqa: E402
import bench_quantize  # noqa: E402
import bench_soak  # noqa: E402
import bench_stream  # noqa: E402
import bench_tasks  # noqa: E402
import bench_text  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402
from common import flops, inputs, kquants, table, team  # noqa: E402
from common.shape import Outlines, Weights, parse_layers, true_width  # noqa: E402

from jmm import Embedder  # noqa: E402
from support import checkpoint, tiny  # noqa: E402

TINY = "qwen25_small"


def test_operations_of_one_layer_by_hand() -> None:
    one, two = true_width((1, 8)), true_width((2, 8))
    matrices = 2048 * 2048 * 2 + 2048 * 256 * 2 + 3 * 2048 * 11008
    attention = 4 * 2048 * (1 + 2 + 3)
    assert flops.language(two, 3) - flops.language(one, 3) == 2 * 3 * matrices + attention
    # 12 x 8 patches: a whole window and half a window, seen by 3 of 4 layers.
    pairs = 6 * (64**2 + 32**2) + 2 * 96**2
    layers = 8 * 96 * (4 * 1280**2 + 3 * 1280 * 3420)
    ends = 96 * 1176 * 1280 + 24 * (5120**2 + 5120 * 2048)
    assert flops.vision(one, 168, 112) == 2 * (layers + ends) + 4 * 1280 * pairs


@pytest.mark.parametrize(
    ("quantize", "kind", "error"), [(kquants.q4_k, "Q4_K", 0.08), (kquants.q6_k, "Q6_K", 0.02)]
)
@pytest.mark.parametrize("shift", [0.0, 1.0, -3.0])
def test_blocks_read_back(quantize: Any, kind: str, error: float, shift: float) -> None:
    values = np.random.default_rng(0).random((6, 512), np.float32) - np.float32(0.5 - shift)
    values[0] = 0
    back = gguf.quants.dequantize(quantize(values), gguf.GGMLQuantizationType[kind])
    assert back.shape == values.shape
    assert np.linalg.norm(back - values) < error * np.linalg.norm(values)
    assert not back[0].any()


def test_outlines_have_the_weights_shapes() -> None:
    model = true_width((1, 2))
    outlines = dict(Outlines(model).items())
    assert outlines["model.language_model.embed_tokens.weight"].shape == (151936, 2048)
    name = "model.visual.blocks.1.mlp.down_proj.weight"
    values = Weights(model).value(name, outlines[name].shape)
    assert values.shape == (1280, 3420)
    assert values.std() == pytest.approx(3420**-0.5, rel=0.01)
    assert np.array_equal(values, Weights(model).value(name, values.shape))


@pytest.mark.parametrize("text", ["783", "0", "784x10"])
def test_sizes_refused(text: str) -> None:
    with pytest.raises(ValueError, match="multiples of 28"):
        inputs.parse_size(text)


@pytest.mark.parametrize(("text", "layers"), [("few", (4, 8)), ("full", (36, 32)), ("1+2", (1, 2))])
def test_layers(text: str, layers: tuple[int, int]) -> None:
    assert parse_layers(text) == layers


@pytest.mark.parametrize("text", ["some", "4", "0+8", "1+1"])
def test_layers_refused(text: str) -> None:
    with pytest.raises(ValueError, match="layers are"):
        parse_layers(text)


def test_full_attention_layers_are_the_true_ones() -> None:
    assert true_width(parse_layers("full")).full_attention_layers == [7, 15, 23, 31]
    assert true_width(parse_layers("few")).full_attention_layers == [3, 7]


@pytest.mark.parametrize("text", ["jmm:f16", "jmm:f16@before", "torch", "jmm@x"])
def test_engine_names(text: str) -> None:
    assert str(team.Spec.parse(text)) == text


class FakeWorker:
    """Answers with its call's number; fails at one of them if told so."""

    def __init__(self, name: str, calls: list[tuple[str, int]], fails_at: int = -1) -> None:
        self.name, self.calls, self.fails_at = name, calls, fails_at

    def ask(self, *, seed: int, vectors: bool = False, **_: object) -> dict[str, Any]:
        if seed == self.fails_at:
            raise team.EngineError("no memory")
        self.calls.append((self.name, seed))
        return {"vectors": [[1.0]]} if vectors else {"total": float(seed)}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    monkeypatch.setattr(team, "PAUSE_SECONDS", 0)
    return []


def test_turns_rotate_and_share_seeds(calls: list[tuple[str, int]]) -> None:
    jobs = [(FakeWorker(name, calls), {}) for name in "ab"]
    answers = team.in_turns(jobs, 2)
    assert calls == [("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert answers == {name: [{"total": 1.0}, {"total": 2.0}] for name in "ab"}


def test_an_engine_that_fails_is_left_out(
    calls: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [(FakeWorker("a", calls), {}), (FakeWorker("b", calls, fails_at=2), {})]
    answers = team.in_turns(jobs, 3)
    assert answers["b"] == []
    assert len(answers["a"]) == 3
    assert "no memory" in capsys.readouterr().err
    alive, vectors = team.warm_up([(FakeWorker("c", calls, fails_at=0), {}), jobs[0]])
    assert [worker.name for worker, _ in alive] == ["a"]
    assert list(vectors) == ["a"]


def test_an_engine_that_is_missing_says_so() -> None:
    with pytest.raises(team.EngineError, match=r"nosuch: .*No module named 'engines\.with_nosuch'"):
        team.Worker(team.Spec("nosuch"), {"n_threads": 1}, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (12.345, "12.3"),
        (1234.5, "1234"),
        (0.12345, "0.123"),
        (0.00123, "0.001"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert table.number(value) == text


def kept(**case: Any) -> dict[str, Any]:
    """A report as bench_image.py keeps it."""
    whole = {
        "height": 784,
        "width": 784,
        "count": 1,
        "operations": {"vision": 3_000_000_000_000, "language": 1_000_000_000_000},
        "ceilings": {"f32": 1e12, "bf16": 4e12},
        "load_average": 2.0,
        "cosine": {"jmm:f16": 1.0, "torch:f32": 0.99991},
        "repetitions": {
            "jmm:f16": [{"total": t, "vision": t / 2, "language": t / 2} for t in (9.0, 2.0, 1.0)],
            "torch:f32": [{"total": 4.0}],
            "stock:f16": [],
        },
    }
    return {
        "benchmark": "image",
        "baseline": "jmm:f16",
        "command": {"layers": "few", "threads": 2, "repeats": 3},
        "machine": {"cpu": "a processor", "cores_allowed": 2, "instruction_sets": ["avx2"]},
        "engines": {"jmm:f16": {"build": {"llama_cpp": "b1", "patches": ["x", "y"]}}},
        "cases": [whole | case],
    }


def test_image_table() -> None:
    lines = bench_image.tables(kept()).splitlines()
    cells = {
        line.split("|")[1].strip(): line.replace(" ", "").split("|")[2:-1] for line in lines[2:6]
    }
    # 4 TFLOP in a median of 2 s, where 4 TFLOP/s are possible
    assert cells["engine"][4] == "/jmm:f16"
    assert cells["jmm:f16"] == ["1.00", "1.00", "2.00", "1.00", "1.00", "2.00", "50%", "1.00000"]
    assert cells["torch:f32"] == ["-", "-", "4.00", "4.00", "2.00", "1.00", "25%", "0.99991"]
    assert lines[6].replace(" ", "") == "|stock:f16|failed|" + "-|" * 7


def test_report_names_machine_and_versions() -> None:
    text = report.markdown([kept()])
    assert "a processor, 2 cores" in text
    assert "llama.cpp b1, 2 patches" in text


def test_plotted_lines() -> None:
    pair = [kept(), kept(height=28, width=112), kept(count=8)]
    assert report.series(pair)["jmm:f16"] == [(56.0, 2.0), (784.0, 2.0)]
    assert "stock:f16" not in report.series(pair)


def test_quantize_tables() -> None:
    def case(sizes: list[int], vectors: list[list[float]]) -> dict[str, Any]:
        times = [{"processor": 3.0}, {"processor": 2.0}]
        return {"bytes": sizes, "peak": 5e6, "repetitions": times, "vectors": vectors}

    vectors = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
    cases = {
        "f32+f32": case([4_000_000, 2_000_000], vectors),
        "f32+q8_0": case([4_000_000, 1_000_000], [[0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]),
        "q8_0+f32": case([2_000_000, 2_000_000], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
        "q8_0+q8_0": {},
    }
    for each in cases.values():
        bench_quantize.add_cosines(each, np.array(vectors))
    report = {
        "command": {"types": ["f32", "q8_0"]},
        "cases": cases,
        "speeds": {"q8_0": {"seconds": 0.5, "source_bytes": 2_000_000}},
    }
    lines = [line.replace(" ", "") for line in bench_quantize.tables(report).splitlines()]
    assert lines[2] == "|f32|f32|6|5|2.00|1.00000|"
    assert lines[3] == "|f32|q8_0|5|5|2.00|0.80000|"
    assert lines[5] == "|q8_0|q8_0|failed|-|-|-|"
    assert lines[-2:] == ["|f32|4|2|1.00000|-|", "|q8_0|2|1|0.60000|1.00|"]


# --- whole runs on something small ---


def run(
    module: ModuleType, folder: Path, patch: pytest.MonkeyPatch, *words: str
) -> tuple[dict[str, Any], str]:
    """What a program keeps, and what report.py prints of it."""
    output = folder / "kept.json"
    patch.setattr(sys, "argv", [module.__name__, *words, "--output", str(output)])
    module.main()
    kept_report = json.loads(output.read_text())
    assert str(folder) not in output.read_text()
    assert kept_report["benchmark"] == module.__name__.removeprefix("bench_")
    assert kept_report["machine"]["cores"] >= 1
    assert kept_report["engines"]["jmm"]["build"]["llama_cpp"]
    return kept_report, report.markdown([kept_report])


def test_stream_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, text = run(bench_stream, tmp_path, monkeypatch, "--items", "20", "--side", "28")
    assert [line["items"] for line in found["cases"]] == list(range(2, 21, 2))
    assert found["command"] == {"items": 20, "side": 28, "model": None, "mmproj": None}
    assert bench_stream.tables(found) in text
    assert bench_stream.tables(found) in capsys.readouterr().out


def test_finite_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    monkeypatch.setattr(models, "pair", lambda _folder, _layers, kind: tiny_files(TINY, kind))
    monkeypatch.setattr(bench_finite, "LARGEST", 80)
    words = ("--pictures", "3", "--threads", "1", "--engines", "jmm:f16", "jmm:q8_0")
    found, text = run(bench_finite, tmp_path, monkeypatch, *words)
    assert found["command"]["device"] == "cpu"
    assert found["cases"] == [
        {"engine": f"jmm:{kind} on cpu", "pictures": 3, "bad": 0} for kind in ("f16", "q8_0")
    ]
    assert bench_finite.tables(found) in text


def test_finite_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    monkeypatch.setattr(models, "pair", lambda _folder, _layers, kind: tiny_files(TINY, kind))
    rows = np.zeros((5, 4), np.float32)
    rows[1, 2], rows[4, 0] = np.nan, np.inf
    monkeypatch.setattr(Embedder, "encode_images", lambda *_, **__: rows)
    words = ("--pictures", "5", "--threads", "1", "--engines", "jmm:f16")
    with pytest.raises(SystemExit, match="not finite"):
        run(bench_finite, tmp_path, monkeypatch, *words)
    assert json.loads((tmp_path / "kept.json").read_text())["cases"][0]["bad"] == 2


def test_stream_slope() -> None:
    # KB: falls, then grows by 2 per item
    lines = [{"items": n, "mb": mb / 1024} for n, mb in ((1, 900), (2, 500), (3, 10), (4, 12))]
    assert bench_stream.slope_kb(lines) == pytest.approx(2)


def test_tasks_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_files: Callable[..., tuple[Path, Path]],
) -> None:
    files = tiny_files("qwen25_small")
    monkeypatch.setattr(models, "pair", lambda *_: files)
    monkeypatch.setattr(bench_tasks, "true_width", lambda _: tiny.MODELS["qwen25_small"])
    words = ("--texts", "3", "--tokens", "5", "--rank", "2", "--repeats", "2", "--threads", "1")
    found, text = run(bench_tasks, tmp_path, monkeypatch, *words)
    settings = {"texts": 3, "tokens": 5, "rank": 2, "repeats": 2, "threads": 1}
    assert found["command"] == settings | {"type": "F16", "layers": "few"}
    assert {name: len(answers) for name, answers in found["repetitions"].items()} == {
        "plain": 2,
        "adapter": 2,
        "changing": 2,
    }
    assert "texts: 3; tokens: 5; repeats: 2" in text


def test_tasks_table() -> None:
    seconds = {"plain": [3.0, 1.0, 2.0], "adapter": [2.5] * 3, "changing": [4.0] * 3}
    repetitions = {
        name: [{"total": t / 1e3, "processor": t / 2e3} for t in ts] for name, ts in seconds.items()
    }
    lines = bench_tasks.tables({"repetitions": repetitions}).replace(" ", "").splitlines()
    assert lines[2] == "|wall|2.0|2.5|4.0|1.5|"
    assert lines[3] == "|processor|1.0|1.2|2.0|0.8|"


@pytest.mark.parametrize("with_oracle", [False, True])
def test_maxsim_runs(with_oracle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(queries: Any, pages: Any, device: str) -> Any:
        rows = [[(q @ p.T).max(1).sum() * 1.5 for p in pages] for q in queries]
        return FakeTensor(rows)

    class FakeTensor:
        def __init__(self, rows: Any) -> None:
            self._rows = np.array(rows, np.float32)

        def numpy(self) -> Any:
            return self._rows

    class FakeTorch:
        __version__ = "0"
        get_num_threads = staticmethod(lambda: 1)
        from_numpy = staticmethod(np.asarray)

    monkeypatch.setattr(bench_maxsim, "CASES", {"small": (2, 3, 4, 5)})
    monkeypatch.setattr(bench_maxsim.metadata, "version", lambda _: "0")
    there = (score, FakeTorch) if with_oracle else None
    monkeypatch.setattr(bench_maxsim, "oracle", lambda: there)
    words = ("--cases", "small", "--repeats", "3")
    found, text = run(bench_maxsim, tmp_path, monkeypatch, *words)
    case = found["cases"]["small"]
    assert case["shape"] == [2, 3, 4, 5]
    names = ["products", "jmm", "colpali"][: 3 if with_oracle else 2]
    assert list(case["repetitions"]) == names
    assert all(len(answers) == 3 for answers in case["repetitions"].values())
    assert list(found["engines"]) == names
    assert ("colpali-engine 0" in text) == with_oracle
    if with_oracle:  # whose scores are half as much again
        assert case["difference"] == pytest.approx(1 / 3, abs=1e-3)


def test_maxsim_table() -> None:
    repetitions = {
        name: [{"total": t, "processor": p}]
        for name, t, p in (("products", 1.0, 1.0), ("jmm", 2.0, 3.0), ("colpali", 5.0, 6.0))
    }
    case = {"shape": [1, 2, 3, 4], "repetitions": repetitions, "difference": 1e-6}
    line = bench_maxsim.tables({"cases": {"x": case}}).splitlines()[2].replace(" ", "")
    assert line == "|x|1of2x3of4|1000.0|2000.0|5000.0|2.50|2.00|1.0e-06|"


def test_preprocess_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_preprocess, "SIZES", {"small": (28, 56)})
    found, text = run(bench_preprocess, tmp_path, monkeypatch, "--repeats", "2")
    answers = found["cases"]["small"]
    assert {"resize", "patchify", "preprocess"} <= set(answers)
    assert all(len(some) == 2 and some[0].keys() >= {"total"} for some in answers.values())
    assert "pillow" in text


def test_texts_of_mixed_lengths() -> None:
    texts = inputs.mixed_texts(64, 64, seed=3)
    assert sorted(map(len, texts)) == list(range(1, 65))
    assert [len(text) for text in texts] != sorted(map(len, texts))
    assert texts == inputs.mixed_texts(64, 64, seed=3) != inputs.mixed_texts(64, 64, seed=4)


def test_mixed_texts_through_the_engine(tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    text, tower = map(str, tiny_files("qwen25_small"))
    worker = team.Worker(team.Spec("jmm"), {"text": text, "tower": tower, "n_threads": 1}, {})
    with worker:
        case = bench_text.measure_mixed([worker], 5, 8, repeats=2)
    answers = case["repetitions"]["jmm"]
    assert len(answers) == 2
    assert min(answers[0][name] for name in ("together", "alone", "alone_processor")) > 0
    case["repetitions"] = {
        "jmm": [{"together": 2.0, "alone": 5.0, "together_processor": 4.0, "alone_processor": 6.0}]
    }
    line = bench_text.tables({"cases": [], "mixed": case}).splitlines()[4].replace(" ", "")
    assert line == "|jmm|2.00|5.00|2.50|4.00|6.00|1.50|"


RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results(path: Path) -> None:
    text = report.markdown([json.loads(path.read_text())])
    assert text.startswith(f"## {path.stem.partition('-')[0]}\n")


def test_results_are_kept() -> None:
    assert {path.stem for path in RESULTS} >= {"maxsim", "quantize", "stream", "tasks"}


def test_load_table() -> None:
    turns = [dict.fromkeys(bench_load.COLUMNS, seconds) for seconds in (0.3, 0.1, 0.2)]
    last = bench_load.tables({"repetitions": turns}).splitlines()[-1]
    assert last.replace(" ", "") == "|built-inmodel|200|200|200|"


def test_a_written_checkpoint_converts(tmp_path: Path) -> None:
    source, out = tmp_path / "checkpoint", tmp_path / "out"
    source.mkdir()
    bench_checkpoint.write_checkpoint(tiny.MODELS["qwen25_small"], source)
    step = bench_checkpoint.measured(*("-m", "jmm", "convert", source, out, "--quiet"))
    assert step["peak"] > step["processor"] > 0
    with Embedder(out, n_threads=1) as embedder:
        vector, tokens = embedder.encode_images(tiny.picture(4, 6), multi_vector="both")
        assert np.isfinite(vector).all()
        assert np.isfinite(tokens).all()
        assert embedder.multi_vector_dim == tokens.shape[1] == bench_checkpoint.PROJECTOR_DIM
        assert tuple(embedder.info["tasks"]) == checkpoint.TASKS


def test_growth_is_a_slope_after_the_warm_up() -> None:
    looks = [(100 * i, 50 * 2**20 + 7 * 100 * i, 3, 9) for i in range(1, 51)]
    looks[:10] = [(i, 10**9, 1, 1) for i, *_ in looks[:10]]
    found = bench_soak.judge(looks)
    assert found["slope"] == pytest.approx(7)
    assert found["last"] == pytest.approx(50 + 7 * 5000 / 2**20)
    assert (found["threads"], found["files"]) == (0, 0)


def test_a_short_soak(capsys: pytest.CaptureFixture[str]) -> None:
    looks = bench_soak.pictures(100, 1)
    assert [n for n, *_ in looks] == [100]
    looks = bench_soak.cycles(20, 1)
    found = bench_soak.judge([looks[0], *looks])
    assert (found["threads"], found["files"]) == (0, 0)
    assert "| 20 cycles" in bench_soak.tables({"pictures": looks, "cycles": looks})
