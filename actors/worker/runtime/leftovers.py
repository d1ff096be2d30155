"""Processes of containers whose keeper was killed: found by their marks, their group or their parent, and ended.

A keeper ends its tree whatever happens, unless it is killed itself. Its runner dies with it; what that started in
sessions of its own goes to the fork server, which takes in orphans. Each process of a container bears two marks in its
first environment, which the kernel shows however far it has gone: the container, and the worker's process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from ....process_identity import start_ticks

CONTAINER_MARK: Final = "LEVERS9_CONTAINER_ID"
WORKER_MARK: Final = "LEVERS9_WORKER_PROCESS"
MARK_CHARACTERS: Final = 128  # room for a container's identity in the environment of a fork server
GONE_WITHIN_S: Final = 2.0
_ROUNDS: Final = 20
_AGAIN_S: Final = 0.005
_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def worker_mark(state_folder: Path) -> str:
    """Names this very process, and the folder that it and its successors share: `pid:ticks:folder`."""
    pid = os.getpid()
    return f"{pid}:{start_ticks(pid)}:{state_folder}"


def end_container(container_id: str, fork_server: int) -> int:
    """End what is left of a container whose keeper is gone; blocks until it is. Returns how many processes it was."""
    name = container_id.encode()

    def left() -> set[int]:
        marked = {pid for pid, marks in _marked() if marks.get(CONTAINER_MARK) == name}
        return (marked | _in_groups(container_id) | _strays(fork_server)) - {fork_server}

    count = _end(left)
    _remove_groups(container_id)
    return count


def end_leftovers(state_folder: Path) -> int:
    """End what dead workers of this state folder left behind; blocks until it is gone. Returns how many it was."""
    containers: set[str] = set()

    def left() -> set[int]:
        found: set[int] = set()
        for pid, marks in _marked():
            if _of_dead_worker(marks.get(WORKER_MARK, b""), state_folder):
                found.add(pid)
                containers.add(marks.get(CONTAINER_MARK, b"").decode(errors="replace"))
        return found.union(*(_in_groups(container_id) for container_id in containers if container_id))

    count = _end(left)
    for container_id in filter(None, containers):
        _remove_groups(container_id)
    return count


def _end(left: Callable[[], set[int]]) -> int:
    """Stop them all first, so that none can start another while its parent is being killed."""
    ended: set[int] = set()
    until = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < until:
        found: set[int] = set()
        for _ in range(_ROUNDS):
            fresh = _with_descendants(left() - found) - found
            if not fresh:
                break
            _send(fresh, signal.SIGSTOP)
            found |= fresh
        if not found:
            break
        _send(found, signal.SIGKILL)
        ended |= found
        time.sleep(_AGAIN_S)
    return len(ended)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # it has ended, or is not ours
            pass


def _marked() -> Iterator[tuple[int, dict[str, bytes]]]:
    """Living processes that bear a mark of a worker, with their marks."""
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            marks = _marks(int(entry.name))
            if WORKER_MARK in marks:
                yield int(entry.name), marks


def _marks(pid: int) -> dict[str, bytes]:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    if WORKER_MARK.encode() not in environment:
        return {}
    found: dict[str, bytes] = {}
    for field in environment.split(b"\0"):
        name, _, value = field.partition(b"=")
        if name in (CONTAINER_MARK.encode(), WORKER_MARK.encode()):
            found[name.decode()] = value.rstrip(b" ")
    return found


def _of_dead_worker(mark: bytes, state_folder: Path) -> bool:
    pid, _, rest = mark.decode(errors="replace").partition(":")
    ticks, _, folder = rest.partition(":")
    return bool(pid.isdigit()) and folder == str(state_folder) and str(start_ticks(int(pid))) != ticks


def _strays(fork_server: int) -> set[int]:
    """Children of the fork server that bear no container's mark: orphans that have hidden what they were."""
    return {pid for pid in _children(fork_server) if not _marks(pid).get(CONTAINER_MARK) and start_ticks(pid)}


def _with_descendants(pids: set[int]) -> set[int]:
    found, waiting = set(pids), list(pids)
    while waiting:
        fresh = _children(waiting.pop()) - found
        found |= fresh
        waiting += fresh
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for path in (_PROC / str(pid) / "task").glob("*/children"):
        try:
            found |= {int(number) for number in path.read_bytes().split()}
        except OSError:
            continue
    return found


def _groups(container_id: str) -> Iterator[Path]:
    """Where a keeper may have made the group of this container (`runner/levers9_runner/cgroups.py`)."""
    for line in (_PROC / "self" / "cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        for parent in {f"{controller}{place}" for controller in controllers.split(",")} | set(controllers.split(",")):
            group = _CGROUPS / parent.strip("/") / f"levers9-{container_id}"
            if group.is_dir():
                yield group


def _in_groups(container_id: str) -> set[int]:
    found: set[int] = set()
    for group in _groups(container_id):
        try:
            found |= {int(number) for number in (group / "cgroup.procs").read_text().split()}
        except OSError:
            continue
    return found


def _remove_groups(container_id: str) -> None:
    for group in tuple(_groups(container_id)):
        try:
            group.rmdir()
        except OSError:  # the kernel needs a moment more; an empty group costs nothing
            pass
