"""`levers9 worker` and `levers9 container`: what runs where, and what a worker is to do."""

from __future__ import annotations

from typing import Annotated

import cyclopts
import msgspec

from .output import Json, ago, print_json, print_table, short_names
from .plane import ask

workers_app = cyclopts.App(name="worker", help="Workers: list, cordon, uncordon, drain. Pools start them.")
WorkerId = Annotated[str, cyclopts.Parameter(name="WORKER_ID")]
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
    node: str = ""
    ordered_at_s: float = 0.0


class Workers(msgspec.Struct, frozen=True):
    """The answer to `worker list`."""

    workers: tuple[Worker, ...]


class Wished(msgspec.Struct, frozen=True):
    """The answer to a wish."""

    worker_id: str
    state: str


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
    headings = ("WORKER", "POOL", "NODE", "STATE", "CPU", "MEMORY", "CARDS", "AGE", "WHY")
    print_table(headings, map(_row, found.workers), "There are no workers.")


def _row(one: Worker) -> tuple[str, ...]:
    size = (f"{one.cpu_milli / 1000:g}", _memory(one.memory_mib), _cards(one))
    return one.worker_id, one.pool, one.node or "–", one.state, *size, ago(one.ordered_at_s), one.why


@workers_app.command
def cordon(worker: WorkerId, /, *, json: Json = False) -> None:
    """Place nothing new on a worker; what runs there stays."""
    _wish(worker, "cordon", json)


@workers_app.command
def uncordon(worker: WorkerId, /, *, json: Json = False) -> None:
    """Let a worker take work again."""
    _wish(worker, "uncordon", json)


@workers_app.command
def drain(worker: WorkerId, /, *, json: Json = False) -> None:
    """Let a worker finish what runs, and leave."""
    _wish(worker, "drain", json)


def _wish(worker_id: str, wish: str, json: bool) -> None:
    found = ask(Wished, "POST", f"workers/{worker_id}/{wish}")
    if json:
        print_json(found)
    else:
        print(f"{found.worker_id} is {found.state}.")


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
    return f"{round(mib / 1024, 1):g} GiB" if mib >= 1024 else f"{mib} MiB"


def _cards(worker: Worker) -> str:
    return f"{worker.gpu_count} {worker.gpu_type}".strip() if worker.gpu_count else "–"
