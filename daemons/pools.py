"""From the tables of pools in a configuration to what their actors are given, and how their workers are started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from ..actors.pool import GuardSettings, Launch, PoolSettings, Processes, ReplayWorkers, WorkerProcesses
from ..errors import INVALID, Refused
from ..wire.post import Post
from .advice import with_advice
from .orders import BrainOrders
from .settings import CLUSTER_KINDS, PoolTable, Settings, nodes_of_two_pools, wrong_in_pool


class Machines(Protocol):
    """Makes what runs the workers of a pool: asked once for each pool that begins."""

    def __call__(self, kind: str, pool: PoolSettings, post: Post) -> Processes:
        """What runs the workers of this pool, over all reigns."""
        ...


def pool_settings(table: PoolTable, rank: int, workspace_id: str) -> PoolSettings:
    """What a pool's actor is given. A pool without isolation serves one workspace, unless all trust each other."""
    if table.kind in CLUSTER_KINDS:
        return PoolSettings(
            name=table.name,
            worker=None,
            max_workers=0,
            keep_free=table.kept_free(),
            idle_s=table.idle_s,
            serves="" if table.isolation == "trusted" else workspace_id,
            placement=table.placement,
            rank=rank,
            gpu_type=table.gpu,
            attached=True,
        )
    return PoolSettings(
        name=table.name,
        worker=table.capacity(),
        nodes=table.offers(),
        traits=table.traits(),
        min_workers=table.min_workers,
        max_workers=table.most_workers,
        keep_free=table.kept_free(),
        idle_s=table.idle_s,
        serves="" if table.isolation == "trusted" else workspace_id,
        placement=table.placement,
        rank=rank,
    )


def guard_settings(settings: Settings) -> GuardSettings:
    """The limits of the provisioning guard."""
    table = settings.provisioning_guard
    return GuardSettings(pending=table.pending, per_minute=table.per_minute)


def read_table(name: str, text: str, others: Iterable[PoolTable]) -> PoolTable:
    """A pool's keys as JSON, checked as in the file; `others` have their nodes already. Raises `Refused`."""
    try:
        table = msgspec.json.decode(text, type=PoolTable)
    except msgspec.MsgspecError as error:
        fix = "Its keys are in docs/configuration.md."
        raise Refused(
            f"Pool {name!r} is not declared well: {with_advice(str(error))}.", fix=fix, code=INVALID
        ) from error
    if table.kind in CLUSTER_KINDS:
        fix = "Write it there, or attach the cluster with `levers9 cluster join`."
        raise Refused(f"A pool of kind {table.kind!r} is declared in the file only.", fix=fix, code=INVALID)
    if table.name != name:
        raise Refused(f"The pool is named {name!r} and {table.name!r}.", fix="Write one name.", code=INVALID)
    for key, wrong in (*wrong_in_pool(table), *nodes_of_two_pools((*others, table))):
        raise Refused(f"Pool {name!r}: {key}: {wrong.rstrip('.')}.", code=INVALID)
    return table


def machines_of(orders: BrainOrders, clock: Callable[[], float]) -> Machines:
    """Workers as child processes of this host, or as messages only, by the kind of their pool."""

    def make(kind: str, pool: PoolSettings, post: Post) -> Processes:
        if kind == "replay":
            return ReplayWorkers(post, pool.name, clock)
        return WorkerProcesses(worker_launch(orders, pool), clock)

    return make


def worker_launch(orders: BrainOrders, pool: PoolSettings) -> Launch:
    """The command of a worker of this pool, without its identity and size; its token comes over a descriptor."""
    state_dir = Path(orders.settings.state_dir)
    argv = [sys.executable, "-m", "levers9.daemons.worker", "--http-url", orders.worker_http_url]
    for url in orders.worker_urls:
        argv += ["--url", url]
    argv += ["--pool", pool.name, "--root-pid", str(orders.root_pid), "--state-dir", str(state_dir / "worker")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEVERS9_")}
    return Launch(argv=tuple(argv), env=env, log_dir=state_dir / "logs")
