"""What the scheduler remembers: workers with what is free on them, and containers from request to end."""

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
    window: int = 0
    token: str = ""

    def move(self, event: ContainerEvent) -> None:
        """Follow the table of container states. Raises KeyError for a pair that the table does not know."""
        self.state = CONTAINER_TRANSITIONS[self.state, event]


class Host(msgspec.Struct, kw_only=True):
    """A worker: ordered, reporting, silent. `free` is what its containers leave."""

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
    stopping: bool = False

    def move(self, event: WorkerEvent) -> None:
        """Follow the table of worker states. Raises KeyError for a pair that the table does not know."""
        self.state = WORKER_TRANSITIONS[self.state, event]

    @property
    def open(self) -> bool:
        """Whether new containers may be placed here."""
        return self.state is WorkerState.AVAILABLE and self.reported and not self.stopping

    @property
    def coming(self) -> bool:
        """Whether it was ordered and has not reported yet."""
        return self.state in (WorkerState.ORDERED, WorkerState.PENDING)

    def take(self, room: Room) -> None:
        """A container is placed here."""
        room.worker_id = self.worker_id
        self.rooms[room.container_id] = room
        self.free = self.free.less(room.spec.shape)

    def give_back(self, room: Room, now_s: float) -> None:
        """A container has gone from here."""
        if self.rooms.pop(room.container_id, None) is not None:
            self.free = self.free.plus(room.spec.shape)
            self.idle_since_s = now_s
