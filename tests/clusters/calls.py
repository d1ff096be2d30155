"""Submits calls for a test: a line of JSON each on standard input, and lines about what became of them on the other.

A call says where it runs by a file `KEY.ATTEMPT.NODE` in the test's folder, and ends once there is a file `KEY.go`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import levers9

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


def _stay(folder: str, key: str) -> list[object]:
    attempt, node = int(os.environ["LEVERS9_ATTEMPT"]), os.environ["LEVERS9_NODE"]
    Path(folder, f"{key}.{attempt}.{node}").touch()
    while not Path(folder, f"{key}.go").exists():
        time.sleep(0.02)
    return [attempt, node, len(os.environ["NVIDIA_VISIBLE_DEVICES"].split(","))]


@levers9.job(gpu="GB200", cpu=0.25, memory=256, timeout=120)
def one(folder: str, key: str) -> list[object]:
    """Stay on one card."""
    return _stay(folder, key)


@levers9.job(gpu="GB200", gpu_count=4, cpu=0.25, memory=256, timeout=120)
def four(folder: str, key: str) -> list[object]:
    """Stay on all cards of a node."""
    return _stay(folder, key)


def _tell(**said: object) -> None:
    """One line, in one write: of threads that print, another's may come between a line and its end."""
    os.write(1, (json.dumps(said) + "\n").encode())


def _follow(function: str, key: str) -> None:
    try:
        task = (four if function == "four" else one).submit(str(FOLDER), key)
        _tell(key=key, task_id=task.id)
        _tell(key=key, value=task.result(wait=True))
    except Exception as error:
        _tell(key=key, error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=_follow, args=json.loads(line), daemon=True).start()
