"""Requests that wait: which get room now, what pools are asked for, and why the rest waits, in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from ...model.resources import Capacity, Shape
from ...model.states import ContainerState
from ...wire import scheduling
from .containers import Containers
from .group import Group
from .ledger import Host, Ledger, Room
from .placement import best_fit, shortfall

WANTED_MAX: Final = 256  # shapes told to a pool at a time: more would not change what it orders now
TOLD_AGAIN_S: Final = 5.0  # a wish that got lost, because its pool was just starting, is made again
LOOKS_MAX: Final = 2_000  # at workers, in one plan: about 1 µs each measured, so 2 ms of the 5 ms that a slice may take
PLACEMENT_LOOKS: Final = (
    20  # what placing costs beside looking, as looks: a token, its row, a move, two messages take 20 µs
)


class _Held(msgspec.Struct, frozen=True):
    """Why a stub's requests wait, and whether only missing machines hold them."""

    why: str
    machines_only: bool = False


_FREE: Final = _Held("")


class _Walk(msgspec.Struct, kw_only=True):
    """One look at all that waits, in slices: the stubs still to come, and what was found until now."""

    stubs: deque[str]
    coming: dict[str, Capacity]
    wanted: dict[str, list[Shape]]
    orders: dict[str, int]
    starting: set[str]


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
        self._held: dict[str, _Held | None] = {}
        self._pool_held: dict[str, scheduling.PoolHeld] = {}
        self._walk: _Walk | None = None
        self._wanted: dict[str, scheduling.RoomWanted] = {}
        self._tell_again_at_s = 0.0

    def pool_held(self, message: scheduling.PoolHeld) -> None:
        """Why a pool orders nothing."""
        self._pool_held.pop(message.pool, None)
        if message.why:
            self._pool_held[message.pool] = message

    def tick(self, now_s: float) -> None:
        """Every few seconds all wishes and reasons are told again."""
        if now_s >= self._tell_again_at_s:
            self._tell_again_at_s = now_s + TOLD_AGAIN_S
            self._wanted.clear()
            self._held = dict.fromkeys(self._held)

    # The walk over all that waits

    @property
    def walking(self) -> bool:
        """Whether a walk over all that waits has begun and has not come to its end."""
        return self._walk is not None

    def begin(self) -> None:
        """Begin a walk; what changes during it is looked at by the next one."""
        self._walk = _Walk(
            stubs=deque(self._ledger.waiting),
            coming={host.worker_id: host.free for host in self._ledger.hosts.values() if host.coming},
            wanted={pool: [] for pool in self._pools},
            orders=dict(self._ledger.orders),
            starting={room.stub_id for room in self._ledger.rooms.values() if room.state is ContainerState.PLACED},
        )

    def go_on(self, now_s: float) -> None:
        """Place what has room, in order within each stub, and tell what does not; at most one slice of it."""
        walk = self._walk
        if walk is None:
            return
        open_hosts = [host for host in self._ledger.hosts.values() if host.open]
        looks_left = LOOKS_MAX
        while walk.stubs and looks_left > 0:
            looks_left -= self._look_at(walk, open_hosts, looks_left, now_s)
        if not walk.stubs:
            self._walk = None
            for pool in self._pools:
                self._tell_wanted(pool, walk)

    def _look_at(self, walk: _Walk, open_hosts: list[Host], looks_left: int, now_s: float) -> int:
        """Place what has room of the stub that is next, which is done with unless looks ran out; returns looks used."""
        stub_id = walk.stubs[0]
        queue = self._ledger.waiting.get(stub_id)
        if not queue:
            walk.stubs.popleft()
            self._ledger.waiting.pop(stub_id, None)
            self._tell_held(stub_id, _FREE)
            return 1
        hosts = self._serving(next(iter(queue.values())), open_hosts)
        looks_each = PLACEMENT_LOOKS + len(hosts)
        count = max(1, looks_left // looks_each)
        placed = self._place_some(queue, hosts, count, now_s)
        if placed:
            walk.starting.add(stub_id)
        if queue and placed < count:  # the next one has no room, nor has any that is like it
            walk.stubs.popleft()
            self._tell_held(stub_id, self._look_ahead(queue, hosts, walk))
        return (placed + 1) * looks_each

    def _place_some(self, queue: dict[str, Room], hosts: list[Host], count: int, now_s: float) -> int:
        """Place one stub's requests; they are all of one shape, so the first that has no room ends it."""
        placed = 0
        for room in tuple(islice(queue.values(), count)):
            host = best_fit(room.spec.shape, hosts)
            if host is None:
                break
            self._containers.place(room, host, now_s)
            placed += 1
        return placed

    def _look_ahead(self, queue: dict[str, Room], hosts: list[Host], walk: _Walk) -> _Held:
        """Count on workers that are on their way, want room for the rest, and say why it waits."""
        first = next(iter(queue.values()))
        shape = first.spec.shape
        why = f"{shortfall(shape, hosts)}."
        machines_only = first.stub_id not in walk.starting
        lacking = len(queue) - self._count_on(walk.coming, first, len(queue))
        if not lacking:
            return _Held(f"{why} A worker is starting.", machines_only)
        pools = [pool for pool in self._pools if self._may_serve(pool, first)]
        if pools:
            room = WANTED_MAX - len(walk.wanted[pools[0]])
            walk.wanted[pools[0]].extend([shape] * min(lacking, room))
        holds = [f"Pool {pool}: {self._pool_held[pool].why}" for pool in pools if pool in self._pool_held]
        backs_off = any(self._pool_held[pool].backs_off for pool in pools if pool in self._pool_held)
        return _Held(" ".join((why, *holds)), machines_only and not backs_off)

    def _count_on(self, coming: dict[str, Capacity], room: Room, count: int) -> int:
        shape = room.spec.shape
        counted = 0
        for worker_id, free in coming.items():
            host = self._ledger.hosts.get(worker_id)
            pool = host.pool if host is not None else ""
            if host is None or shape.pool not in ("", pool) or not self._serves_workspace(pool, room):
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

    def _tell_held(self, stub_id: str, held: _Held) -> None:
        if self._held.get(stub_id) != held and (held.why or stub_id in self._held):
            message = scheduling.ContainerHeld(stub_id=stub_id, why=held.why, machines_only=held.machines_only)
            self._group.send("tasks", message)
        self._held[stub_id] = held
        if not held.why:
            del self._held[stub_id]

    def _tell_wanted(self, pool: str, walk: _Walk) -> None:
        """`orders_seen` is as of the walk's beginning: workers that were ordered meanwhile are not counted on yet."""
        shapes = tuple(walk.wanted[pool])
        message = scheduling.RoomWanted(pool=pool, shapes=shapes, orders_seen=walk.orders.get(pool, 0))
        if message != self._wanted.get(pool):
            self._wanted[pool] = message
            self._group.send(f"pool/{pool}", message)
