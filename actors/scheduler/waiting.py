"""Requests that wait: which get room now, what pools are asked for, and why the rest waits, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.resources import Capacity, Shape
from ...wire import scheduling
from .containers import Containers
from .group import Group
from .ledger import Host, Ledger, Room
from .placement import best_fit, shortfall

WANTED_MAX: Final = 256  # shapes told to a pool at a time: more would not change what it orders now
TOLD_AGAIN_S: Final = 5.0  # a wish that got lost, because its pool was just starting, is made again


class Waiting:
    """Places by best fit. `pools` are in the order in which they are asked; `sizes` their workers' sizes, if known.

    `serves` names the one workspace of each pool that takes no other's work.
    """

    def __init__(
        self,
        ledger: Ledger,
        group: Group,
        containers: Containers,
        pools: tuple[str, ...],
        sizes: dict[str, Capacity],
        serves: Mapping[str, str],
    ) -> None:
        self._ledger = ledger
        self._group = group
        self._containers = containers
        self._pools = pools
        self._sizes = sizes
        self._serves = serves
        self._held: dict[str, str] = {}
        self._pool_held: dict[str, str] = {}
        self._wanted: dict[str, scheduling.RoomWanted] = {}
        self._tell_again_at_s = 0.0

    def pool_held(self, pool: str, why: str) -> None:
        """Why a pool orders nothing."""
        self._pool_held[pool] = why

    def tick(self, now_s: float) -> None:
        """Every few seconds all wishes and reasons are told again."""
        if now_s >= self._tell_again_at_s:
            self._tell_again_at_s = now_s + TOLD_AGAIN_S
            self._wanted.clear()
            self._held = dict.fromkeys(self._held, "")

    def place(self, now_s: float) -> None:
        """Place what has room, in order within each stub, and tell what does not."""
        open_hosts = [host for host in self._ledger.hosts.values() if host.open]
        coming = {host.worker_id: host.free for host in self._ledger.hosts.values() if host.coming}
        wanted: dict[str, list[Shape]] = {pool: [] for pool in self._pools}
        for stub_id, queue in tuple(self._ledger.waiting.items()):
            left = self._place_stub(queue, open_hosts, now_s)
            if not queue:
                del self._ledger.waiting[stub_id]
            self._tell_held(stub_id, self._look_ahead(left, open_hosts, coming, wanted) if left else "")
        for pool in self._pools:
            self._tell_wanted(pool, wanted[pool])

    def _place_stub(self, queue: dict[str, Room], open_hosts: list[Host], now_s: float) -> list[Room]:
        """Place one stub's requests; they are all of one shape, so the first that has no room ends it."""
        for room in tuple(queue.values()):
            host = best_fit(room.spec.shape, self._serving(room, open_hosts))
            if host is None:
                return list(queue.values())
            self._containers.place(room, host, now_s)
        return []

    def _look_ahead(
        self,
        left: list[Room],
        open_hosts: list[Host],
        coming: dict[str, Capacity],
        wanted: dict[str, list[Shape]],
    ) -> str:
        """Count on workers that are on their way, want room for the rest, and say why it waits."""
        first = left[0]
        shape = first.spec.shape
        why = f"{shortfall(shape, self._serving(first, open_hosts))}."
        lacking = len(left) - self._count_on(coming, first, len(left))
        if not lacking:
            return f"{why} A worker is starting."
        pools = [pool for pool in self._pools if self._may_serve(pool, first)]
        if pools:
            room = WANTED_MAX - len(wanted[pools[0]])
            wanted[pools[0]].extend([shape] * min(lacking, room))
        holds = [f"Pool {pool}: {self._pool_held[pool]}" for pool in pools if self._pool_held.get(pool)]
        return " ".join((why, *holds))

    def _count_on(self, coming: dict[str, Capacity], room: Room, count: int) -> int:
        shape = room.spec.shape
        counted = 0
        for worker_id, free in coming.items():
            pool = self._ledger.hosts[worker_id].pool
            if shape.pool not in ("", pool) or not self._serves_workspace(pool, room):
                continue
            while counted < count and free.fits(shape):
                free = free.less(shape)
                counted += 1
            coming[worker_id] = free
        return counted

    def _may_serve(self, pool: str, room: Room) -> bool:
        size, shape = self._sizes.get(pool), room.spec.shape
        fits = shape.pool in ("", pool) and (size is None or size.fits(shape))
        return fits and self._serves_workspace(pool, room)

    def _serves_workspace(self, pool: str, room: Room) -> bool:
        return self._serves.get(pool, "") in ("", room.workspace_id)

    def _serving(self, room: Room, hosts: list[Host]) -> list[Host]:
        return [host for host in hosts if self._serves_workspace(host.pool, room)]

    def _tell_held(self, stub_id: str, why: str) -> None:
        if self._held.get(stub_id) != why and (why or stub_id in self._held):
            self._group.send("tasks", scheduling.ContainerHeld(stub_id=stub_id, why=why))
        self._held[stub_id] = why
        if not why:
            del self._held[stub_id]

    def _tell_wanted(self, pool: str, shapes: list[Shape]) -> None:
        message = scheduling.RoomWanted(pool=pool, shapes=tuple(shapes), orders_seen=self._ledger.orders.get(pool, 0))
        if message != self._wanted.get(pool):
            self._wanted[pool] = message
            self._group.send(f"pool/{pool}", message)
