"""Pools and their workers, as REST shows them."""

from __future__ import annotations

import msgspec

from ...model.resources import Capacity
from .answer import Answer


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A named node, and the worker on it, "" for none."""

    name: str
    state: str
    capacity: Capacity
    labels: dict[str, str]
    worker_id: str


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as of now. `size` None: its workers are as large as their nodes. `holds`: why it orders nothing."""

    name: str
    size: Capacity | None
    min_workers: int
    max_workers: int
    workers: int
    pending: int
    wanted: int
    wanted_gangs: int
    beyond: bool
    holds: tuple[str, ...]
    serves: str
    placement: str
    created: bool
    leaving: bool
    nodes: tuple[NodeView, ...]


class PoolList(Answer, frozen=True, kw_only=True):
    """Pools, in the order in which they are asked for workers."""

    pools: tuple[PoolView, ...]


class PoolWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of a pool."""

    worker_id: str
    state: str
    node: str
    capacity: Capacity
    gang_id: str
    ordered_at_s: float
    why: str


class PoolShown(Answer, frozen=True, kw_only=True):
    """A pool and its workers, oldest first."""

    pool: PoolView
    workers: tuple[PoolWorker, ...]


class PoolNames(Answer, frozen=True, kw_only=True):
    """The pools there are after a change."""

    names: tuple[str, ...]


class WorkerWished(Answer, frozen=True, kw_only=True):
    """A worker's state after a wish."""

    worker_id: str
    state: str
