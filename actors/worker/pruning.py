"""Checkouts that nobody needs any more, and what a worker that was killed left half done."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

UNUSED_S: Final = 7 * 86_400.0
KEPT_BYTES: Final = 10 << 30  # of all checkouts of a state folder together
JUST_NOW_S: Final = 3600.0  # what was used within is kept even over the limit: others may be about to use it
PRUNE_EVERY_S: Final = 6 * 3600.0
PARTIAL: Final = ".partial"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A checkout: when it was used last, and the bytes that it holds beyond those used after it."""

    path: Path
    used_at_s: float
    size_bytes: int


def to_drop(
    checkouts: Iterable[Kept], now_s: float, unused_s: float = UNUSED_S, kept_bytes: int = KEPT_BYTES
) -> list[Kept]:
    """Those unused for long, and, least recently used first, those that make it too much. Pure."""
    dropped: list[Kept] = []
    total_bytes = 0
    for one in sorted(checkouts, key=lambda kept: (-kept.used_at_s, str(kept.path))):
        total_bytes += one.size_bytes
        unused_for_s = now_s - one.used_at_s
        if unused_for_s > unused_s or (total_bytes > kept_bytes and unused_for_s > JUST_NOW_S):
            dropped.append(one)
    return dropped[::-1]


def partial_of_the_dead(name: str, lives: Callable[[int], bool]) -> bool:
    """Whether this is `HASH.PID.partial`, or another name that ends so, of a process that has ended. Pure."""
    if not name.endswith(PARTIAL):
        return False
    pid = name.removesuffix(PARTIAL).rpartition(".")[2]
    return not (pid.isdigit() and lives(int(pid)))


def prune(folder: Path, now_s: float, kept_bytes: int = KEPT_BYTES) -> int:
    """Remove what is not needed below a folder of workspaces; blocks. Returns how many checkouts were removed.

    `now_s` is Unix time, as file systems note it.
    """
    for place in (*folder.glob("*/code"), *folder.glob("*/files")):
        for entry in list(os.scandir(place)):
            if partial_of_the_dead(entry.name, _lives):
                _remove(Path(entry.path))
    removed = sum(map(_drop, to_drop(_checkouts(folder), now_s, kept_bytes=kept_bytes)))
    for path in folder.glob("*/files/*"):
        _drop_file(path, now_s)
    return removed


def _checkouts(folder: Path) -> Iterator[Kept]:
    """Newest first; a file that several share counts for the one used last."""
    found: list[tuple[float, Path]] = []
    for path in folder.glob("*/code/*"):
        if not path.name.endswith(PARTIAL):
            with contextlib.suppress(FileNotFoundError):  # another worker was first
                found.append((path.stat().st_mtime, path))
    counted: set[int] = set()
    for used_at_s, path in sorted(found, reverse=True):
        yield Kept(path=path, used_at_s=used_at_s, size_bytes=_bytes_not_in(counted, path))


def _bytes_not_in(counted: set[int], folder: Path) -> int:
    size_bytes = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(f"{at}/{name}")
                size_bytes += 0 if status.st_ino in counted else status.st_size
                counted.add(status.st_ino)
    return size_bytes


def _drop(kept: Kept) -> bool:
    """Remove a checkout unless somebody uses it; it has another name before the first of its files goes."""
    try:
        descriptor = os.open(kept.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        going = kept.path.with_suffix(f".going.{os.getpid()}{PARTIAL}")
        kept.path.rename(going)
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)
    _remove(going)
    return True


def _drop_file(path: Path, now_s: float) -> None:
    """Remove a file that no checkout links any more, and has not for a while."""
    try:
        status = path.stat()
        if status.st_nlink == 1 and now_s - status.st_ctime > JUST_NOW_S and not path.name.endswith(PARTIAL):
            path.unlink()
    except FileNotFoundError:
        pass


def _remove(path: Path) -> None:
    """Folders of checkouts are read-only: they are opened first."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for at, _, _ in os.walk(path):
        os.chmod(at, stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
