"""Signals that end a daemon, heard as a cancellation."""

from __future__ import annotations

import signal

import trio


async def cancel_on_signal(scope: trio.CancelScope) -> None:
    """Cancel the scope at SIGTERM or SIGINT; runs until it is cancelled itself."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            scope.cancel(reason=signal.Signals(number).name)
