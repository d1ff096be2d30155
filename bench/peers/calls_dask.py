"""No-op calls on Dask distributed: two processes of one thread."""

from dask.distributed import Client, LocalCluster
from timing import arguments, report

PROCESSES = 2


def noop(value: int) -> int:
    return value


def main() -> None:
    wanted = arguments()
    cluster = LocalCluster(n_workers=PROCESSES, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:

        def run_map(calls: int) -> None:
            results = client.gather(client.map(noop, range(calls), pure=False))
            assert results[-1] == calls - 1

        def run_one(value: int) -> None:
            assert client.submit(noop, value, pure=False).result() == value

        report(wanted.mapped, wanted.sequential, run_map, run_one)


if __name__ == "__main__":
    main()
