"""No-op calls on levers9, against the control plane that `levers9 dev --run` started."""

from timing import arguments, report

import levers9


@levers9.job(cpu=0.5, memory=128, timeout=60, retries=0)
def noop(value: int) -> int:
    return value


def run_map(calls: int) -> None:
    results = list(noop.map(range(calls)))
    assert results[-1] == calls - 1


def run_one(value: int) -> None:
    assert noop.remote(value) == value


if __name__ == "__main__":
    wanted = arguments()
    report(wanted.mapped, wanted.sequential, run_map, run_one)
