"""The formulas of docs/scale.md by hand, and the simulated pool against closed forms."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_capacity  # noqa: E402
import bench_workers  # noqa: E402
from common.capacity import Fleet, Page  # noqa: E402
from common.workers import simulate  # noqa: E402


def never(*_: object) -> None:
    return None


def test_fleets_by_hand() -> None:
    page = Page(cpu_seconds=30.0, private_bytes=2e9, shared_bytes=5e9)
    fleet = Fleet(workers=10, threads=3, cores_per_machine=8, efficiency=0.5)
    assert fleet.workers_per_machine == 2
    assert fleet.machines == 5
    assert fleet.seconds_per_page(page) == 20
    assert fleet.pages_per_hour(page) == 1800
    assert fleet.hours(page, 9000) == 5
    assert fleet.memory_per_machine(page) == 9e9
    wide = Fleet(workers=1, threads=64, cores_per_machine=8)
    assert (wide.workers_per_machine, wide.machines) == (1, 1)


def test_the_page_is_the_median_and_what_no_file_backs_is_private() -> None:
    memory = {"peak": 9e9, "file": 5e9, "now": 8e9, "anonymous": 3e9}
    cases = [{"seconds": s, "cpu_seconds": 2 * s, **memory} for s in (3.0, 1.0, 2.0)]
    assert bench_capacity.page_of(cases) == Page(4.0, 4e9, 5e9)


def test_equal_workers_that_never_die() -> None:
    outcome = simulate([7.0] * 5, 23, lambda *_: 2.0, never, restart=1)
    assert outcome.seconds == 7 + 2 * 5  # 23 batches are 5 rounds of 5
    assert (outcome.busy, outcome.lost, outcome.deaths) == (46, 0, 0)
    assert outcome.efficiency(5) == 46 / (5 * 17)


def test_a_slow_worker_ends_with_what_it_has_in_hand() -> None:
    """By hand: 1 s against 10 s, 6 batches; the slow one keeps its two, the other has four."""
    outcome = simulate([0.0, 0.0], 6, lambda worker, _: (1.0, 10.0)[worker], never, restart=1)
    assert outcome.seconds == 20
    greedy = simulate(
        [0.0, 0.0], 6, lambda worker, _: (1.0, 10.0)[worker], never, restart=1, in_hand=1
    )
    assert greedy.seconds == 10


def test_a_late_worker_takes_what_is_left() -> None:
    assert simulate([0.0, 3.0], 8, lambda *_: 1.0, never, restart=1).seconds == 6
    assert simulate([0.0, 100.0], 8, lambda *_: 1.0, never, restart=1).seconds == 8


def test_deaths_against_the_formula() -> None:
    """Work of t seconds with deaths at random and restarts of R: (exp(t/M) - 1) (M + R)."""
    rng = np.random.default_rng(0)
    mean, restart, work, n = 100.0, 20.0, 50.0, 40_000

    def death(_: int, __: int, seconds: float) -> float | None:
        at = float(rng.exponential(mean))
        return at if at < seconds else None

    outcome = simulate([0.0], n, lambda *_: work, death, restart=restart)
    expected = np.expm1(work / mean) * (mean + restart)
    assert outcome.seconds / n == pytest.approx(expected, rel=0.02)
    assert outcome.busy + outcome.lost == pytest.approx(outcome.seconds)
    assert outcome.deaths / n == pytest.approx(np.expm1(work / mean), rel=0.03)


def test_a_kept_run_of_ray_is_near_its_simulation() -> None:
    """`bench_workers.py --ray` as it was kept: what docs/scale.md says of it."""
    kept = json.loads((BENCHMARKS / "results" / "workers-ray.json").read_text())
    (case,) = kept["cases"]
    assert case["simulated_seconds"] == pytest.approx(case["measured_seconds"], rel=0.15)
    assert case["batches_twice"] == len(bench_workers.FATAL)
    assert sum(case["batches"]) == bench_workers.N_BATCHES + case["batches_twice"]
