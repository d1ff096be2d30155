"""What follows from a plan and takes a while, done one after the other beside the loop that decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class InTurn(Generic[T]):
    """What is still to be done. Bounded by its owner: pools that come and go, say, have few changes each at a time."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._news = trio.Event()

    def add(self, *changes: T) -> None:
        """To be done after all that waits already."""
        self._waiting += changes
        self._news.set()

    async def carry_out(self, one: Callable[[T], Awaitable[None]]) -> None:
        """Do one after the other, until cancelled."""
        while True:
            while not self._waiting:
                self._news = trio.Event()
                await self._news.wait()
            await one(self._waiting.popleft())
