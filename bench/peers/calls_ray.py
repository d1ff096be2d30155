"""No-op calls on Ray: tasks on two cores of this machine."""

import ray
from timing import arguments, report

PROCESSES = 2


@ray.remote
def noop(value: int) -> int:
    return value


def run_map(calls: int) -> None:
    results = ray.get([noop.remote(value) for value in range(calls)])
    assert results[-1] == calls - 1


def run_one(value: int) -> None:
    assert ray.get(noop.remote(value)) == value


if __name__ == "__main__":
    wanted = arguments()
    ray.init(num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False, configure_logging=False)
    report(wanted.mapped, wanted.sequential, run_map, run_one)
    ray.shutdown()
