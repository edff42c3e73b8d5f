"""A pool of workers simulated: stragglers, deaths, and an engine that runs lost batches again.

What is assumed, as Ray Data's actor pools do:

- batches go out in order; a worker takes ``in_hand`` of them when it is up and another one whenever
  it ends one, and runs one at a time;
- a worker that dies loses the batch it runs, is started again after ``restart`` seconds, and runs
  that batch and those in its hand again; no other worker takes them over;
- what a batch takes does not depend on the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Duration = Callable[[int, int], float]
"""Seconds that a batch takes: worker, batch."""
Death = Callable[[int, int, float], "float | None"]
"""Seconds into a batch at which its worker dies, None for not: batch, attempt, its seconds."""


@dataclass(frozen=True)
class Outcome:
    """Of one run.

    Attributes:
        seconds: From the start to the end of the last batch.
        busy: Seconds of all workers in batches that were finished.
        lost: Seconds in batches that were not, and in restarts.
        deaths: How many.
    """

    seconds: float
    busy: float
    lost: float
    deaths: int

    def efficiency(self, workers: int) -> float:
        """The share of all workers' time that went into finished batches."""
        return self.busy / (workers * self.seconds)


def simulate(
    starts: Sequence[float],
    batches: int,
    duration: Duration,
    death: Death,
    *,
    restart: float,
    in_hand: int = 2,
) -> Outcome:
    """Runs all batches.

    Args:
        starts: Second at which each worker has loaded its model.
        batches: Their number.
        duration: Of a batch on a worker.
        death: Of a worker, drawn anew for each attempt.
        restart: Seconds until a dead worker has loaded its model again.
        in_hand: Most batches that a worker has.

    Example:
        >>> simulate([0, 0], 4, lambda worker, batch: 1.0, lambda *_: None, restart=5).seconds
        2.0
    """
    waiting = deque(range(batches))
    hands: list[deque[int]] = [deque() for _ in starts]
    # Of each worker the time at which it is up, then at which it ends a batch.
    events = [(start, worker) for worker, start in enumerate(starts)]
    heapq.heapify(events)
    busy = lost = finish = 0.0
    deaths = 0
    while events:
        now, worker = heapq.heappop(events)
        hand = hands[worker]
        if hand:
            hand.popleft()
            finish = now
        while waiting and len(hand) < in_hand:
            hand.append(waiting.popleft())
        if not hand:
            continue
        seconds, attempt = duration(worker, hand[0]), 0
        while (dies := death(hand[0], attempt, seconds)) is not None:
            now, lost = now + dies + restart, lost + dies + restart
            deaths, attempt = deaths + 1, attempt + 1
        busy += seconds
        heapq.heappush(events, (now + seconds, worker))
    return Outcome(finish, busy, lost, deaths)
