"""How many pages an hour, in how much memory: the formulas of docs/scale.md.

Example:
    >>> page = Page(cpu_seconds=40.0, private_bytes=2e9, shared_bytes=3e9)
    >>> fleet = Fleet(workers=100, threads=4, cores_per_machine=64, efficiency=0.8)
    >>> fleet.machines, fleet.pages_per_hour(page), fleet.memory_per_machine(page) / 1e9
    (7, 28800.0, 35.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """What one page takes, as measured.

    Attributes:
        cpu_seconds: Processor seconds, all threads together. For a worker that owns a GPU, the
            seconds of the clock, with ``threads`` and ``efficiency`` 1.
        private_bytes: Peak of a worker's own memory.
        shared_bytes: Mapped files, of which a machine keeps one copy for all workers.
    """

    cpu_seconds: float
    private_bytes: float
    shared_bytes: float


@dataclass(frozen=True)
class Fleet:
    """Equal workers on equal machines.

    Attributes:
        workers: In all.
        threads: Of each, which have a core of their own.
        cores_per_machine: That workers may use.
        efficiency: The share of the threads' time that is work:
            ``cpu_seconds / (threads * seconds of the clock)``.
    """

    workers: int
    threads: int
    cores_per_machine: int
    efficiency: float = 1.0

    @property
    def workers_per_machine(self) -> int:
        """As many as have cores, and no more than there are; at least one."""
        return min(self.workers, max(1, self.cores_per_machine // self.threads))

    @property
    def machines(self) -> int:
        """Machines that hold all workers."""
        return math.ceil(self.workers / self.workers_per_machine)

    def seconds_per_page(self, page: Page) -> float:
        """Seconds of the clock that a worker takes for one page."""
        return page.cpu_seconds / (self.threads * self.efficiency)

    def pages_per_hour(self, page: Page) -> float:
        """Of all workers, with work for all of them."""
        return 3600 * self.workers / self.seconds_per_page(page)

    def hours(self, page: Page, n: int) -> float:
        """For ``n`` pages, without loading; the last to end may be one batch later."""
        return n / self.pages_per_hour(page)

    def memory_per_machine(self, page: Page) -> float:
        """Bytes on a full machine, without the engine that spreads the work."""
        return page.shared_bytes + self.workers_per_machine * page.private_bytes
