"""A process tree as the kernel shows it. The keeper is a subreaper, so whatever its runner started is below it."""

from __future__ import annotations

import os
import signal

_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> list[int]:
    """Every process below `root`, parents first."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(number) for number in file.read().split()]
    except OSError:  # it ended meanwhile; its children have come to the subreaper
        pass
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to each that still lives."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def kill_all(root: int) -> None:
    """Kill everything below `root`. They are stopped first, so that none can fork while its parent is being killed."""
    seen: set[int] = set()
    for _ in range(20):
        fresh = [pid for pid in descendants(root) if pid not in seen]
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        seen.update(fresh)
    send(descendants(root), signal.SIGKILL)


def memory_bytes(root: int, limit_bytes: int) -> int:
    """Memory that the tree holds; pages shared by forks are counted once as soon as that matters for the limit."""
    pids = descendants(root)
    total = sum(_resident(pid) for pid in pids)
    return sum(_proportional(pid) for pid in pids) if total > limit_bytes else total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE  # without mapped files


def _proportional(pid: int) -> int:
    kinds = (b"Pss_Anon:", b"Pss_Shmem:")
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(kinds))
    except (OSError, IndexError):
        return _resident(pid)
