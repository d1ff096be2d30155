"""Submits calls of gangs for a test, as `calls.py` does. Each rank says who and where it is in a file `KEY.rank-N`."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import levers9

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
DOMAIN = levers9.Topology("accelerator.topograph.run/domain", mode="required")
MEET_WITHIN_S = 30.0


def _tell(folder: str, key: str, met: list[str]) -> int:
    me = levers9.gang()
    cards = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")
    told = [me.rank, me.world_size, os.environ["LEVERS9_NODE"], cards, me.address, met]
    Path(folder, f"{key}.rank-{me.rank}").write_text(json.dumps(told))
    return me.rank


@levers9.job(gpu="GB200", gpu_count=1, nodes=8, topology=DOMAIN, cpu=0.25, memory=128, timeout=120, retries=0)
def eight(folder: str, key: str) -> int:
    """Eight ranks with a card each, in one NVLink domain."""
    return _tell(folder, key, [])


@levers9.job(gpu="GB200", gpu_count=4, nodes=2, topology=DOMAIN, cpu=0.5, memory=256, timeout=120, retries=0)
def meeting(folder: str, key: str) -> int:
    """Two ranks with all cards of a node each; rank 0 listens where its address is, the other calls there."""
    me = levers9.gang()
    host, _, port = me.address.rpartition(":")
    return _tell(folder, key, _listen(host, int(port)) if me.rank == 0 else _call(host, int(port)))


def _listen(host: str, port: int) -> list[str]:
    """Meet the other rank; returns what it said."""
    with socket.create_server((host, port)) as server:
        server.settimeout(MEET_WITHIN_S)
        other, _ = server.accept()
        with other:
            other.sendall(b"rank 0\n")
            return [other.makefile().readline().strip()]


def _call(host: str, port: int) -> list[str]:
    """Call until rank 0 listens; returns what it said."""
    ends_s = time.monotonic() + MEET_WITHIN_S
    while True:
        try:
            other = socket.create_connection((host, port))
        except ConnectionRefusedError:
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.02)
            continue
        with other:
            other.sendall(f"rank {levers9.gang().rank}\n".encode())
            return [other.makefile().readline().strip()]


@levers9.job(gpu="GB200", cpu=0.25, memory=128, timeout=120)
def one(folder: str, key: str) -> str:
    """Stay on a card until there is a file `KEY.go`; the worker with all free cards of the node stays longer."""
    Path(folder, f"{key}.1.{os.environ['LEVERS9_NODE']}").touch()
    while not Path(folder, f"{key}.go").exists():
        time.sleep(0.02)
    return os.environ["LEVERS9_NODE"]


FUNCTIONS = {"eight": eight, "meeting": meeting, "one": one}


def _say(**told: object) -> None:
    """One line: of threads that print, another's may come between a line and its end."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _follow(function: str, key: str) -> None:
    try:
        task = FUNCTIONS[function].submit(str(FOLDER), key)
        _say(key=key, task_id=task.id)
        _say(key=key, value=task.result(wait=True))
    except Exception as error:
        _say(key=key, error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=_follow, args=json.loads(line), daemon=True).start()
