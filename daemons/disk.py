"""A full disk is told where a person looks, with what to do, and so is that there is room again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

FULL_BELOW_BYTES: Final = 32 << 20  # two segments of Postgres' log: it cannot go on for long
ROOM_ABOVE_BYTES: Final = 48 << 20
LOOK_EVERY_S: Final = 1.0


class Disk:
    """What was said last of the disk under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._full = False

    def judge(self, free_bytes: int) -> str:
        """The sentence to say now; empty while nothing has changed."""
        if not self._full and free_bytes < FULL_BELOW_BYTES:
            self._full = True
            return (
                f"The disk of {self.folder} is full: {free_bytes >> 20} MiB are left. Calls and results may have to "
                "wait until there is room again; nothing that was accepted is lost. Delete something there."
            )
        if self._full and free_bytes >= ROOM_ABOVE_BYTES:
            self._full = False
            return f"The disk of {self.folder} has room again: {free_bytes >> 20} MiB. Work goes on."
        return ""


async def watch_disks(folders: tuple[Path, ...], say: Callable[[str], None]) -> None:
    """Look every second until cancelled; a folder that is not there is not looked at."""
    disks = [Disk(folder) for folder in folders]
    while True:
        for disk in disks:
            sentence = disk.judge(free_bytes(disk.folder))
            if sentence:
                say(sentence)
        await trio.sleep(LOOK_EVERY_S)


def free_bytes(folder: Path) -> int:
    """What a process of ours may still write there; plenty where nobody can tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return found.f_bavail * found.f_frsize
