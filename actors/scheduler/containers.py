"""Containers from request to end: what `tasks` asks for and gives back, what workers say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...model.states import ContainerEvent, ContainerState, End, TokenKind
from ...store import operations as ops
from ...wire import scheduling
from ...wire.client import StubSpec
from . import events, hearsay
from .deciding import Deciding
from .group import Group
from .ledger import Host, Ledger, Room

WITHDRAWN: Final = "its pool takes the work of another workspace only, from now on"
PREEMPTED: Final = "preempted: "  # as a row begins to say why it stops, so that a new leader knows it, too


def request_of(rooms: list[Room], requested_at_s: float) -> events.Request:
    """The demand for room of one container, or of a gang in order of its ranks."""
    first, spec = rooms[0], rooms[0].spec
    return events.Request(
        request_id=first.gang_id or first.container_id,
        group=first.stub_id,
        label=spec.name,
        workspace=first.workspace_id,
        members=tuple(room.container_id for room in rooms),
        shape=spec.shape,
        queue=spec.queue,
        priority=spec.priority,
        together=spec.together,
        limit_s=_limit_s(spec),
        requested_at_s=requested_at_s,
    )


def _limit_s(spec: StubSpec) -> float:
    """How long a container is needed at most is known where it is needed for one call: a gang's."""
    return spec.timeout_s if spec.nodes > 1 else 0.0


class Containers:
    """Moves containers along their table, and tells the core, `tasks` and the workers."""

    def __init__(
        self,
        ledger: Ledger,
        group: Group,
        deciding: Deciding,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
    ) -> None:
        self._ledger = ledger
        self._group = group
        self._deciding = deciding
        self._new_id = new_id
        self._new_token = new_token

    def request(self, message: scheduling.RequestContainers, now_s: float) -> None:
        """Take requests in; knowing one twice is knowing it once."""
        new = [
            Room(
                container_id=container_id,
                stub_id=message.stub_id,
                workspace_id=message.workspace_id,
                spec=message.spec,
                gang_id=message.gang_id,
                rank=message.ranks[place] if message.ranks else place if message.gang_id else 0,
                replaces=bool(message.ranks),
            )
            for place, container_id in enumerate(message.container_ids)
            if container_id not in self._ledger.rooms
        ]
        for room in new:
            self._ledger.add_room(room)
        if message.ranks:
            self._ask_for_replacements(message.gang_id, new, now_s)
        elif new:
            self.ask([new] if message.gang_id else [[room] for room in new], now_s)

    def ask(self, requests: list[list[Room]], now_s: float) -> None:
        """Ask the core for room."""
        asked = tuple(request_of(rooms, now_s) for rooms in requests)
        self._deciding.tell(events.Requested(requests=asked), now_s)

    def _ask_for_replacements(self, gang_id: str, rooms: list[Room], now_s: float) -> None:
        for room in rooms:
            lost = events.Replacement(request_id=room.gang_id, rank=room.rank, member=room.container_id)
            self._deciding.tell(lost, now_s)
        self._end_orphans(gang_id, now_s)

    def _end_orphans(self, gang_id: str, now_s: float) -> None:
        """Where nothing is left of a gang, nothing can be near it: `tasks` asks for a new one."""
        left = tuple(self._ledger.gangs.get(gang_id, {}).values())
        if all(room.replaces and room.state is ContainerState.REQUESTED for room in left):
            for room in left:
                self._end(room, ContainerEvent.STOP_ASKED, End.DISCONNECTED, "nothing is left of its gang", now_s)

    def release(self, container_id: str, why: str, now_s: float) -> None:
        """Forget a request, or stop what runs; what has ended meanwhile is left alone."""
        room = self._ledger.rooms.get(container_id)
        if room is None:
            return
        if room.state is ContainerState.REQUESTED:
            self.end(room, ContainerEvent.STOP_ASKED, End.CANCELLED, why, now_s)
            return
        before = room.move(ContainerEvent.STOP_ASKED)
        if before is not room.state:
            self._group.move_container(room, before)
        self.stop(room, why)

    def stop(self, room: Room, why: str) -> None:
        """Tell the worker to stop a container; it answers with the end, however often it is told."""
        message = scheduling.StopContainer(container_id=room.container_id, why=why, preempted=room.preempted)
        self._group.send(f"worker/{room.worker_id}", message)

    def place(self, room: Room, host: Host, cards: tuple[int, ...], flavor: str, now_s: float) -> None:
        """A request gets its room."""
        self._group.move_container(room, self._ledger.place(room, host, cards, flavor))
        self.start(room, now_s)

    def start(self, room: Room, now_s: float) -> None:
        """Tell the worker to start a container, with a token for it. Told twice, it starts it once."""
        token = self._new_token(TokenKind.WORKSPACE_RESTRICTED)
        self._group.create_token(self._token_row(room, token, now_s))
        message = scheduling.StartContainer(
            container_id=room.container_id,
            stub_id=room.stub_id,
            workspace_id=room.workspace_id,
            spec=room.spec,
            token=token,
            cards=room.cards,
            gang_id=room.gang_id,
            rank=room.rank,
            world_size=room.spec.nodes,
        )
        self._group.send(f"worker/{room.worker_id}", message)

    def _token_row(self, room: Room, token: str, now_s: float) -> ops.TokenRow:
        return ops.TokenRow.of(
            token,
            TokenKind.WORKSPACE_RESTRICTED,
            room.workspace_id,
            f"container {room.container_id}",
            token_id=self._new_id("token"),
            now_s=now_s,
            subject=room.container_id,
        )

    def withdraw(self, pool: str) -> None:
        """What runs in a pool that takes its workspace's work no more finishes its calls, and gets no new one."""
        serves = self._ledger.pools[pool].serves
        rooms = (room for host in self._ledger.hosts.values() if host.pool == pool for room in host.rooms.values())
        stays = (ContainerState.PLACED, ContainerState.READY)
        names = [room.container_id for room in rooms if room.workspace_id != serves and room.state in stays]
        if serves and names:
            self._group.send("tasks", scheduling.YieldContainers(container_ids=tuple(names), why=WITHDRAWN))

    def preempt(self, room: Room, why: str) -> None:
        """Stop a container so that another request has its room: the calls that it has use no retry."""
        if room.state in (ContainerState.REQUESTED, ContainerState.STOPPING):
            return
        room.preempted = True
        why = f"{PREEMPTED}{why}"
        self._group.move_container(room, room.move(ContainerEvent.STOP_ASKED), why=why)
        self.stop(room, why)

    def ready(self, message: scheduling.ContainerReady, source: str, now_s: float) -> None:
        """A container is warm, says its own worker. One that was told to stop meanwhile gets no call."""
        room = self._ledger.rooms.get(message.container_id)
        if room is None or source != f"worker/{room.worker_id}":
            return
        room.address = hearsay.address(message.address)
        before = room.move(ContainerEvent.BECAME_READY)
        if before is not room.state:
            self._group.move_container(room, before)
        if room.state is ContainerState.READY:
            self._deciding.tell(events.Started(member=room.container_id), now_s)
            self.tell_available(room, hearsay.window(message.window))

    def tell_available(self, room: Room, window: int) -> None:
        """Tell `tasks` how many calls a warm container takes; 0 while its worker is silent."""
        message = scheduling.ContainerAvailable(
            container_id=room.container_id,
            stub_id=room.stub_id,
            worker_id=room.worker_id,
            window=window,
            address=room.address,
        )
        self._group.send("tasks", message)

    def ended(self, message: scheduling.ContainerEnded, source: str, now_s: float) -> None:
        """A container ended, says its own worker, which is told in any case that this is known."""
        room = self._ledger.rooms.get(message.container_id)
        if room is not None and source != f"worker/{room.worker_id}":
            return
        if room is not None:
            self.end(room, ContainerEvent.ENDED, message.end, hearsay.why(message.why), now_s)
        self._group.send(source, scheduling.ContainerForgotten(container_id=message.container_id))

    def end(self, room: Room, event: ContainerEvent, end: End, why: str, now_s: float) -> None:
        """A container is no more: its room is free, its tokens are void, and `tasks` hears of it."""
        self._end(room, event, end, why, now_s)
        if room.gang_id:
            self._end_orphans(room.gang_id, now_s)

    def _end(self, room: Room, event: ContainerEvent, end: End, why: str, now_s: float) -> None:
        self._group.move_container(room, self._ledger.end(room, event, now_s), end, why)
        self._group.revoke(room.container_id)
        self._deciding.tell(events.Ended(member=room.container_id), now_s)
        gone = scheduling.ContainerGone(
            container_id=room.container_id, stub_id=room.stub_id, end=end, why=why, preempted=room.preempted
        )
        self._group.send("tasks", gone)
