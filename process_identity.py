"""When a process started, by which it is told from a later one with the same number."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_START_TICKS: Final = 19  # field 22 of /proc/PID/stat, counted behind the command's closing parenthesis


def start_ticks(pid: int) -> int | None:
    """When a process of this host started, in clock ticks since boot; None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[_START_TICKS])
