"""What an event loop does beside other work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def turns_beside(work: Awaitable[Result]) -> tuple[Result, int]:
    """What some work gives, and how many turns the loop made for another task meanwhile.

    Example:
        >>> asyncio.run(turns_beside(asyncio.sleep(0.1, "done")))[0]
        'done'
    """
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    result = await work
    ticking.cancel()
    return result, turns
