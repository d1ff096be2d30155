"""`levers9 worker list` and `levers9 container list`: what runs where."""

from __future__ import annotations

import cyclopts
import msgspec

from .output import Json, ago, print_json, print_table, short_names
from .plane import ask

workers_app = cyclopts.App(name="worker", help="List workers; pools start them.")
containers_app = cyclopts.App(name="container", help="List containers.")


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the control plane tells it."""

    worker_id: str
    pool: str
    state: str
    cpu_milli: int
    memory_mib: int
    gpu_count: int
    gpu_type: str
    why: str
    ordered_at_s: float = 0.0


class Workers(msgspec.Struct, frozen=True):
    """The answer to `worker list`."""

    workers: tuple[Worker, ...]


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container as the control plane tells it."""

    container_id: str
    stub_id: str
    name: str = ""
    state: str
    worker_id: str
    requested_at_s: float
    ready_at_s: float
    ended_at_s: float
    end: str | None
    why: str


class Containers(msgspec.Struct, frozen=True):
    """The answer to `container list`."""

    containers: tuple[Container, ...]


@workers_app.command(name="list")
def list_workers(*, gone: bool = False, json: Json = False) -> None:
    """List workers.

    Parameters
    ----------
    gone
        The newest that are gone as well, and why.
    """
    found = ask(Workers, "GET", "workers", query={"gone": int(gone)})
    if json:
        print_json(found.workers)
        return
    rows = ((one.worker_id, one.pool, one.state, f"{one.cpu_milli / 1000:g}", _memory(one.memory_mib), _cards(one),
             ago(one.ordered_at_s), one.why) for one in found.workers)  # fmt: skip
    print_table(("WORKER", "POOL", "STATE", "CPU", "MEMORY", "CARDS", "AGE", "WHY"), rows, "There are no workers.")


@containers_app.command(name="list")
def list_containers(*, ended: bool = False, json: Json = False) -> None:
    """List containers.

    Parameters
    ----------
    ended
        The newest that ended as well, and how.
    """
    found = ask(Containers, "GET", "containers", query={"ended": int(ended)})
    if json:
        print_json(found.containers)
        return
    names = short_names([one.name or one.stub_id for one in found.containers])
    rows = ((one.container_id, name, one.end or one.state, ago(one.requested_at_s), one.worker_id or "–", one.why)
            for one, name in zip(found.containers, names))  # fmt: skip
    print_table(("CONTAINER", "FUNCTION", "STATE", "AGE", "WORKER", "WHY"), rows, "There are no containers.")


def _memory(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def _cards(worker: Worker) -> str:
    return f"{worker.gpu_count} {worker.gpu_type}".strip() if worker.gpu_count else "–"
