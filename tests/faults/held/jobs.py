"""Functions that hold their room until they are told to end, and then for some seconds more."""

import json
import sys
import time

from levers9 import Topology, job


def train(stubborn_s: float) -> None:
    """Hold the room."""
    while True:
        try:
            time.sleep(0.02)
        except BaseException:
            ends_s = time.monotonic() + stubborn_s
            while time.monotonic() < ends_s:
                time.sleep(0.02)
            raise


def other(stubborn_s: float) -> None:
    """Hold the room under another name."""
    train(stubborn_s)


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    if "topology" in options:
        options["topology"] = Topology(options["topology"])
    function = {"train": train, "other": other}[sys.argv[1]]
    print(job(**options)(function).submit(float(sys.argv[3])).id)
