"""Processes found by a variable in their environment, and signalled without ever meeting a later one of their number.

A process group is not enough: programs such as our own worker start children in sessions of their own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..process_identity import start_ticks

_ROUNDS: Final = 5  # a process may fork while we look


def marked(variable: str, value: str) -> Iterator[tuple[int, int]]:
    """Every process that has this variable: its number, and when it started, in clock ticks since boot."""
    mark = f"{variable}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        ticks = start_ticks(int(entry.name))
        try:
            found = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is somebody else's
        if found and ticks is not None:
            yield int(entry.name), ticks


def signal_exactly(pid: int, ticks: int, number: signal.Signals) -> None:
    """Signal the process that started then; nothing happens where it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(pid) == ticks:
            signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(descriptor)


def kill_marked(variable: str, value: str) -> None:
    """Kill them all, and what they have started meanwhile; other threads of ours are not waited for."""
    for _ in range(_ROUNDS):
        found = [each for each in marked(variable, value) if each[0] != os.getpid()]
        for pid, ticks in found:
            signal_exactly(pid, ticks, signal.SIGKILL)
        if not found:
            return
