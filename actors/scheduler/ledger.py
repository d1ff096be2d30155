"""What the scheduler remembers of workers and containers: their states, and who is where. Room is the core's."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from ...model.nodes import Traits
from ...model.resources import Capacity
from ...model.states import (
    CONTAINER_TRANSITIONS,
    WORKER_TRANSITIONS,
    ContainerEvent,
    ContainerState,
    WorkerEvent,
    WorkerState,
)
from ...wire.client import StubSpec
from ...wire.scheduling import PoolDeclared

_NO_TRAITS = Traits()
CORDONED: Final = "cordoned by a person"  # as a row says it, so that silence and new leaders change nothing of it


class Room(msgspec.Struct, kw_only=True):
    """A container: requested, placed, ready, stopping. With a `gang_id` it is one of `world_size`, by rank."""

    container_id: str
    stub_id: str
    workspace_id: str
    spec: StubSpec
    state: ContainerState = ContainerState.REQUESTED
    worker_id: str = ""
    cards: tuple[int, ...] = ()
    flavor: str = ""
    gang_id: str = ""
    rank: int = 0
    address: str = ""
    preempted: bool = False
    replaces: bool = False  # a member that its gang lost

    def move(self, event: ContainerEvent) -> ContainerState:
        """Follow the table of container states; returns the state before. Raises KeyError for an unknown pair."""
        before = self.state
        self.state = CONTAINER_TRANSITIONS[before, event]
        return before


class Host(msgspec.Struct, kw_only=True):
    """A worker: ordered, reporting, silent. `stop_why` is set once it must go.

    `capacity` is what it has, as it says itself; `ordered` what it was to have, as far as that is known.
    """

    worker_id: str
    pool: str
    capacity: Capacity
    traits: Traits = _NO_TRAITS
    state: WorkerState = WorkerState.ORDERED
    epoch: int = 0
    reported: bool = False
    rooms: dict[str, Room] = msgspec.field(default_factory=dict)
    idle_since_s: float = 0.0
    silent_since_s: float = 0.0
    stop_why: str = ""
    cordoned: bool = False
    ordered: Capacity | None = None

    def move(self, event: WorkerEvent) -> None:
        """Follow the table of worker states. Raises KeyError for a pair that the table does not know."""
        self.state = WORKER_TRANSITIONS[self.state, event]

    @property
    def open(self) -> bool:
        """Whether new containers may be placed here."""
        return self.state is WorkerState.AVAILABLE and self.reported

    @property
    def coming(self) -> bool:
        """Whether it was ordered and has not reported yet."""
        return self.state in (WorkerState.ORDERED, WorkerState.PENDING)

    @property
    def unheard(self) -> bool:
        """Whether its lease runs: it is silent, or has not reported to us, who were not there when it did."""
        return self.state is WorkerState.UNKNOWN or not (self.reported or self.coming)


class Ledger:
    """Every container that has not ended, every worker that is not gone, and pools as they declared themselves."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.rooms: dict[str, Room] = {}
        self.gangs: dict[str, dict[int, Room]] = {}  # by rank
        self.orders: dict[str, int] = {}  # by pool: workers that we have heard of
        self.pools: dict[str, PoolDeclared] = {}

    def add_host(self, host: Host) -> None:
        """Know a worker."""
        self.hosts[host.worker_id] = host
        self.orders[host.pool] = self.orders.get(host.pool, 0) + 1

    def let_go(self, worker_ids: tuple[str, ...]) -> None:
        """They came for a gang that gave them back: those that stand idle have done so for long enough."""
        for worker_id in worker_ids:
            host = self.hosts.get(worker_id)
            if host is not None and not host.rooms:
                host.idle_since_s = -math.inf

    def forget_pool(self, pool: str) -> None:
        """A pool is no more. One of that name that comes later counts its orders from the beginning."""
        self.pools.pop(pool, None)
        self.orders.pop(pool, None)

    def add_room(self, room: Room) -> None:
        """Know a container."""
        self.rooms[room.container_id] = room
        if room.gang_id:
            self.gangs.setdefault(room.gang_id, {})[room.rank] = room

    def place(self, room: Room, host: Host, cards: tuple[int, ...], flavor: str) -> ContainerState:
        """A request gets its room; returns the state before."""
        room.cards, room.flavor = cards, flavor
        self.join(room, host)
        return room.move(ContainerEvent.PLACED)

    @staticmethod
    def join(room: Room, host: Host) -> None:
        """A container is on a worker."""
        room.worker_id = host.worker_id
        host.rooms[room.container_id] = room

    def end(self, room: Room, event: ContainerEvent, now_s: float) -> ContainerState:
        """A container is no more; returns the state before."""
        before = room.move(event)
        del self.rooms[room.container_id]
        gang = self.gangs.get(room.gang_id, {})
        if gang.get(room.rank) is room:
            del gang[room.rank]
            if not gang:
                del self.gangs[room.gang_id]
        host = self.hosts.get(room.worker_id)
        if host is not None:
            del host.rooms[room.container_id]
            host.idle_since_s = now_s
        return before
