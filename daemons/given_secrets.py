"""Secrets that a process is given in its environment: taken out at once, so that no child and no look finds them."""

from __future__ import annotations

import ctypes
import os


def take(name: str) -> str:
    """The variable's value, "" for none; it is gone from the environment, and from what /proc shows of it.

    Children inherit nothing of it. What the process was started with stays in the kernel's view of its memory unless it
    is written over, which this does.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(name.encode())
    if place:
        ctypes.memset(place, 0, len(ctypes.string_at(place)))
    return os.environ.pop(name, "")
