"""The benchmarks' own logic: counts, layouts, turns and tables. Nothing is timed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_image  # noqa: E402
import bench_quantize  # noqa: E402
import report  # noqa: E402
from common import flops, inputs, kquants, table, team  # noqa: E402
from common.shape import Outlines, Weights, parse_layers, true_width  # noqa: E402


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
