"""Signals that end a daemon, heard as a cancellation."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def until_signal() -> AsyncIterator[trio.CancelScope]:
    """What is inside is cancelled at SIGTERM or SIGINT.

    Signals that come while it stops are taken in: none cuts short what it still has to put away.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as listening:
            with trio.CancelScope() as scope:
                listening.start_soon(_cancel_at_each, signals, scope)
                yield scope
            listening.cancel_scope.cancel(reason="what signals would end has ended")


async def _cancel_at_each(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for number in signals:
        scope.cancel(reason=signal.Signals(number).name)
