"""What the scheduler remembers: workers with what is free on them, and containers from request to end.

The ledger alone takes room and gives it back, so that free and used are always the capacity.
"""

from __future__ import annotations

import msgspec

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


class Room(msgspec.Struct, kw_only=True):
    """A container: requested, placed, ready, stopping."""

    container_id: str
    stub_id: str
    workspace_id: str
    spec: StubSpec
    state: ContainerState = ContainerState.REQUESTED
    worker_id: str = ""

    def move(self, event: ContainerEvent) -> ContainerState:
        """Follow the table of container states; returns the state before. Raises KeyError for an unknown pair."""
        before = self.state
        self.state = CONTAINER_TRANSITIONS[before, event]
        return before


class Host(msgspec.Struct, kw_only=True):
    """A worker: ordered, reporting, silent. `free` is what its containers leave; `stop_why` is set once it must go."""

    worker_id: str
    pool: str
    capacity: Capacity
    free: Capacity
    state: WorkerState = WorkerState.ORDERED
    epoch: int = 0
    reported: bool = False
    rooms: dict[str, Room] = msgspec.field(default_factory=dict)
    idle_since_s: float = 0.0
    silent_since_s: float = 0.0
    stop_why: str = ""

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

    def take(self, room: Room) -> None:
        """A container is placed here."""
        room.worker_id = self.worker_id
        self.rooms[room.container_id] = room
        self.free = self.free.less(room.spec.shape)

    def give_back(self, room: Room, now_s: float) -> None:
        """A container has gone from here."""
        del self.rooms[room.container_id]
        self.free = self.free.plus(room.spec.shape)
        self.idle_since_s = now_s

    def resize(self, capacity: Capacity) -> None:
        """The worker has this much now; what is free may fall below zero until containers have gone."""
        self.capacity = self.free = capacity
        for room in self.rooms.values():
            self.free = self.free.less(room.spec.shape)


class Ledger:
    """Every container that has not ended, every worker that is not gone; `waiting` are requests by stub, in order."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.rooms: dict[str, Room] = {}
        self.waiting: dict[str, dict[str, Room]] = {}
        self.orders: dict[str, int] = {}  # by pool: workers that we have heard of

    def add_host(self, host: Host) -> None:
        """Know a worker."""
        self.hosts[host.worker_id] = host
        self.orders[host.pool] = self.orders.get(host.pool, 0) + 1

    def add_request(self, room: Room) -> None:
        """Know a request for room."""
        self.rooms[room.container_id] = room
        self.waiting.setdefault(room.stub_id, {})[room.container_id] = room

    def place(self, room: Room, host: Host) -> ContainerState:
        """A request gets its room; returns the state before."""
        del self.waiting[room.stub_id][room.container_id]
        host.take(room)
        return room.move(ContainerEvent.PLACED)

    def end(self, room: Room, event: ContainerEvent, now_s: float) -> ContainerState:
        """A container is no more; returns the state before."""
        before = room.move(event)
        del self.rooms[room.container_id]
        self.waiting.get(room.stub_id, {}).pop(room.container_id, None)
        host = self.hosts.get(room.worker_id)
        if host is not None:
            host.give_back(room, now_s)
        return before
