"""A control group for one container, where this machine lets us make one: v2 when delegated to us, else v1."""

from __future__ import annotations

import os
import time

_ROOT = "/sys/fs/cgroup"


class Cgroup:
    """The folders of one container. `limits_memory` says whether the kernel holds its memory limit."""

    def __init__(self, folders: list[str], limits_memory: bool) -> None:
        self._folders = folders
        self.limits_memory = limits_memory

    def join(self) -> None:
        """Put this process, and what it will start, into the group."""
        for folder in self._folders:
            _write(folder, "cgroup.procs", "0")

    def oom_kills(self) -> int:
        """How many processes the kernel ended here for want of memory."""
        return max((_counter(folder, name) for folder in self._folders for name in _OOM_FILES), default=0)

    def peak_bytes(self) -> int:
        """The most memory it held, or 0 where the kernel doesn't tell."""
        names = ("memory.peak", "memory.max_usage_in_bytes")
        return max((_number(folder, name) for folder in self._folders for name in names), default=0)

    def remove(self) -> None:
        """Remove the folders; the kernel needs a moment after the last process has gone."""
        for folder in self._folders:
            for _ in range(50):
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.002)
                else:
                    break


_OOM_FILES = ("memory.events", "memory.oom_control")


def make(name: str, memory_bytes: int, cpu_milli: int, root: str = _ROOT, own: str = "/proc/self/cgroup") -> Cgroup:
    """Make the group of a container. It has no folder at all where nothing is allowed."""
    places = _own_groups(own)
    if "" in places and os.path.exists(f"{root}/cgroup.controllers"):
        return _make_v2(f"{root}{places['']}", name, memory_bytes, cpu_milli)
    return _make_v1(root, places, name, memory_bytes, cpu_milli)


def _make_v2(parent: str, name: str, memory_bytes: int, cpu_milli: int) -> Cgroup:
    folder = f"{parent.rstrip('/')}/levers9-{name}"
    _write(parent, "cgroup.subtree_control", "+memory +cpu")  # refused where processes are in the parent: then no limit
    if not _make_folder(folder):
        return Cgroup([], False)
    limited = _write(folder, "memory.max", str(memory_bytes)) if memory_bytes else False
    if limited:
        _write(folder, "memory.swap.max", "0")
        _write(folder, "memory.oom.group", "1")
    weighed = _write(folder, "cpu.weight", str(min(10_000, max(1, cpu_milli // 10))))
    if not limited and not weighed:
        os.rmdir(folder)
        return Cgroup([], False)
    return Cgroup([folder], limited)


def _make_v1(root: str, places: dict[str, str], name: str, memory_bytes: int, cpu_milli: int) -> Cgroup:
    memory, cpu = (_v1_folder(root, places, controller, name) for controller in ("memory", "cpu"))
    limited = bool(memory and memory_bytes and _write(memory, "memory.limit_in_bytes", str(memory_bytes)))
    if limited:
        _write(memory, "memory.memsw.limit_in_bytes", str(memory_bytes))
    if cpu:
        _write(cpu, "cpu.shares", str(max(2, cpu_milli * 1024 // 1000)))  # a share, not a ceiling: idle CPU is used
    return Cgroup([folder for folder in (memory, cpu) if folder], limited)


def _v1_folder(root: str, places: dict[str, str], controller: str, name: str) -> str:
    if controller not in places:
        return ""
    for parent in (f"{root}/{controller}{places[controller].rstrip('/')}", f"{root}/{controller}"):
        if os.path.exists(f"{parent}/cgroup.procs"):
            return f"{parent}/levers9-{name}" if _make_folder(f"{parent}/levers9-{name}") else ""
    return ""


def _own_groups(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with open(path) as file:
            for line in file:
                _, controllers, place = line.rstrip("\n").split(":", 2)
                found.update(dict.fromkeys(controllers.split(","), place))
    except OSError:
        pass
    return found


def _make_folder(folder: str) -> bool:
    try:
        os.mkdir(folder)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _write(folder: str, name: str, text: str) -> bool:
    try:
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    except OSError:
        return False
    return True


def _read(folder: str, name: str) -> str:
    try:
        with open(f"{folder}/{name}") as file:
            return file.read()
    except OSError:
        return ""


def _counter(folder: str, name: str) -> int:
    lines = [line.split() for line in _read(folder, name).splitlines()]
    return next((int(fields[1]) for fields in lines if fields and fields[0] == "oom_kill"), 0)


def _number(folder: str, name: str) -> int:
    text = _read(folder, name).strip()
    return int(text) if text.isdigit() else 0
