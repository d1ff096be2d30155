"""A program that is interrupted: run by test_interrupt.py in a process of its own, with what to do as its argument."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent / "sample")]

import sample_work  # noqa: E402

from levers9.sdk import current  # noqa: E402
from levers9.sdk.connection import Connection  # noqa: E402
from tests.sdk.control_plane import FakeControlPlane  # noqa: E402
from tests.sdk.http_stub import HttpStub  # noqa: E402


def ready() -> None:
    print("ready", flush=True)


def ready_with_a_call(plane: FakeControlPlane) -> None:
    plane.wait_until(lambda: len(plane.tasks) == 1)
    ready()


def endless() -> Iterator[int]:
    x = 0
    while True:
        yield x
        x += 1


def main(what: str) -> None:
    http = HttpStub()
    http.start()
    plane = FakeControlPlane(http)
    current.use(lambda: current.connect(plane.settings, plane.dial))
    try:
        if what == "remote":
            plane.hold = True
            threading.Thread(target=ready_with_a_call, args=(plane,), daemon=True).start()
            sample_work.double.remote(1)
        elif what == "map":
            plane.hold = True
            results = sample_work.double.map(range(100))
            plane.wait_until(lambda: len(plane.tasks) == 100)
            ready()
            list(results)
        elif what == "between":
            for place, _ in enumerate(sample_work.double.map(endless(), max_in_flight=50)):
                if place == 3:
                    plane.hold = True
                elif place == 40:
                    ready()
                    time.sleep(30)
        elif what == "submit":
            sample_work.double.submit(1)
            connection: Connection = current.current()
            connection.close()
            print("accepted", len(plane.tasks), flush=True)
    finally:
        http.stop()


if __name__ == "__main__":
    main(sys.argv[1])
