"""What do slow and dying workers cost? A simulation, and a real local Ray beside it.

    python benchmarks/bench_workers.py [--workers 1000] [--output FILE.json]
    python benchmarks/bench_workers.py --ray

The simulation is common/workers.py's, whose docstring says what it assumes. Per line --runs draws:
a batch takes --batch-seconds times a factor of mean 1 (lognormal, --spread its coefficient of
variation), a share of the workers is --slow-factor times slower, and each worker dies once in
--hours-between-deaths on average. Columns:
    slow            share of the workers that are slow
    death every, h  average time between a worker's deaths, "never" for none
    efficiency      share of the workers' time in finished batches
    (a to b)        5th to 95th percentile of the runs
    time            of the whole run, beside that of equal workers that never die
    deaths          per run

--ray runs batches that only sleep on a local Ray with two actors, of which one is twice as slow and
two batches kill their worker halfway at the first attempt. What the simulation gives for the same
starts and restarts stands beside what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, options, table
from common.workers import Outcome, simulate

COLUMNS = ("slow", "death every, h", "efficiency", "(a to b)", "time", "deaths")
SLOW = (0.0, 0.05)
HOURS = (float("inf"), 24.0, 1.0)
# Of --ray: batches that only sleep.
SLEEP, FACTOR, N_BATCHES, FATAL = 0.5, 2.0, 60, (20, 41)


def draw(arguments: argparse.Namespace, slow: float, hours: float, seed: int) -> Outcome:
    """One simulated run."""
    rng = np.random.default_rng(seed)
    sigma = np.sqrt(np.log1p(arguments.spread**2))
    factors = np.where(rng.random(arguments.workers) < slow, arguments.slow_factor, 1.0)
    n_batches = arguments.workers * arguments.batches
    lengths = arguments.batch_seconds * rng.lognormal(-(sigma**2) / 2, sigma, n_batches)
    mean = 3600 * hours

    def death(_: int, __: int, seconds: float) -> float | None:
        if not np.isfinite(mean):
            return None
        at = rng.exponential(mean)
        return float(at) if at < seconds else None

    return simulate(
        [arguments.restart] * arguments.workers,
        n_batches,
        lambda worker, batch: float(factors[worker] * lengths[batch]),
        death,
        restart=arguments.restart,
    )


def simulated(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One case per share of slow workers and time between deaths."""
    ideal = arguments.restart + arguments.batches * arguments.batch_seconds
    cases = []
    for slow, hours in itertools.product(SLOW, HOURS):
        runs = [draw(arguments, slow, hours, seed) for seed in range(arguments.runs)]
        cases.append(
            {
                "slow": slow,
                "hours": hours if np.isfinite(hours) else None,
                "efficiency": [run.efficiency(arguments.workers) for run in runs],
                "time": [run.seconds / ideal for run in runs],
                "deaths": [run.deaths for run in runs],
            }
        )
    return cases


def tables(report: dict[str, Any]) -> str:
    """Of a kept run, as Markdown."""
    rows = []
    if report["command"]["ray"]:
        (case,) = report["cases"]
        row = [f"{case[f'{kind}_seconds']:.1f}" for kind in ("measured", "simulated")]
        row.append(" and ".join(f"{seconds:.1f}" for seconds in case["restarts"]))
        return table.markdown(["Ray, s", "simulated, s", "restarts, s"], [row])
    for case in report["cases"]:
        low, high = np.percentile(case["efficiency"], [5, 95])
        rows.append(
            [
                f"{case['slow']:.0%}",
                "never" if case["hours"] is None else f"{case['hours']:g}",
                f"{np.mean(case['efficiency']):.1%}",
                f"{low:.1%} to {high:.1%}",
                f"{np.mean(case['time']):.2f}",
                f"{np.mean(case['deaths']):.0f}",
            ]
        )
    return table.markdown(COLUMNS, rows)


def in_ray() -> dict[str, Any]:
    """Measured and simulated seconds of the same run."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        # No task reads: the two actors have all CPUs.
        rows = ray.data.from_items(
            [{"id": i} for i in range(N_BATCHES)], override_num_blocks=N_BATCHES
        )
        rows.map_batches(
            _sleeper(Path(folder)), batch_size=1, compute=ray.data.ActorPoolStrategy(size=2)
        ).materialize()
        events = [
            json.loads(line)
            for file in Path(folder).glob("*.log")
            for line in file.read_text().splitlines()
        ]
    ray.shutdown()
    return compared(sorted(events, key=lambda event: event["begin"]))


def _sleeper(folder: Path) -> type:
    class Sleeper:
        """Keeps a log of when it ran what; the first of them to come is the slow one."""

        def __init__(self) -> None:
            self.log = folder / f"{os.getpid()}.log"
            with contextlib.suppress(FileExistsError):
                (folder / "slow").symlink_to(ray_actor())
            self.slow = os.readlink(folder / "slow") == ray_actor()

        def __call__(self, batch: Any) -> Any:
            (number,) = map(int, batch["id"])
            seconds = SLEEP * (FACTOR if self.slow else 1.0)
            marker = folder / f"{number}.died"
            dies = number in FATAL and not marker.exists()
            event = {"batch": number, "actor": ray_actor(), "slow": self.slow, "dies": dies}
            with self.log.open("a") as log:
                log.write(json.dumps({**event, "begin": time.time()}) + "\n")
            if dies:
                marker.touch()
                time.sleep(seconds / 2)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(seconds)
            return batch

    def ray_actor() -> str:
        import ray

        return ray.get_runtime_context().get_actor_id()

    return Sleeper


def compared(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The measured run beside the simulation with its starts and restarts.

    Args:
        events: Begin of every attempt, in order of time.
    """
    actors = list(dict.fromkeys(event["actor"] for event in events))
    slow = {event["actor"] for event in events if event["slow"]}
    first = events[0]["begin"]
    starts = [
        min(event["begin"] for event in events if event["actor"] == actor) - first
        for actor in actors
    ]
    restarts = []
    for number in FATAL:
        dead, again = (event for event in events if event["batch"] == number)
        seconds = SLEEP * (FACTOR if dead["slow"] else 1.0)
        restarts.append(again["begin"] - dead["begin"] - seconds / 2)
    factors = [FACTOR if actor in slow else 1.0 for actor in actors]
    last = max(event["begin"] + SLEEP * (FACTOR if event["slow"] else 1.0) for event in events)
    outcome = simulate(
        starts,
        N_BATCHES,
        lambda worker, _: SLEEP * factors[worker],
        lambda batch, attempt, seconds: seconds / 2 if batch in FATAL and not attempt else None,
        restart=float(np.mean(restarts)),
    )
    return {
        "measured_seconds": last - first,
        "simulated_seconds": outcome.seconds,
        "starts": starts,
        "restarts": restarts,
        "batches": [sum(event["actor"] == actor for event in events) for actor in actors],
        "batches_twice": len(events) - N_BATCHES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ray", action="store_true", help="compare with a local Ray")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=50, help="per worker")
    parser.add_argument("--batch-seconds", type=float, default=600.0)
    parser.add_argument("--spread", type=float, default=0.2)
    parser.add_argument("--slow-factor", type=float, default=3.0)
    parser.add_argument("--restart", type=float, default=60.0, help="seconds, loading included")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    report = options.begin(arguments, "workers", {"jmm": jmm_build.describe()})
    report["cases"] = [in_ray()] if arguments.ray else simulated(arguments)
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
