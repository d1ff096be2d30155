"""What the core decided, made into rows and messages."""

from __future__ import annotations

from ...model.reasons import Reason
from ...model.sentences import sentence
from ...model.states import ContainerEvent, ContainerState, End
from ...wire import scheduling
from . import events
from .containers import Containers
from .deciding import Deciding
from .events import Decision
from .group import Group
from .ledger import Ledger, Room


class Performing:
    """Performs decisions one by one, in order."""

    def __init__(self, ledger: Ledger, group: Group, deciding: Deciding, containers: Containers) -> None:
        self._ledger = ledger
        self._group = group
        self._deciding = deciding
        self._containers = containers

    def perform(self, now_s: float) -> bool:
        """Perform all that was decided; returns whether there is more to decide."""
        more = False
        for decision in self._deciding.take_decisions():
            more = self._one(decision, now_s) or more
        return more

    def _one(self, decision: Decision, now_s: float) -> bool:
        match decision:
            case events.Placed() | events.Replaced():
                self._place_all(decision, now_s)
            case events.Preempted(request_id=request_id, why=why):
                for room in self._members(request_id):
                    self._containers.preempt(room, why)
            case events.NotReplaced(member=member, why=why):
                self._end(member, why, now_s)
            case events.More():
                return True
            case _:
                self._say(decision, now_s)
        return False

    def _place_all(self, decision: events.Placed | events.Replaced, now_s: float) -> None:
        if isinstance(decision, events.Replaced):
            room = self._ledger.rooms[decision.member]
            self._place(room, decision.node_id, decision.cards, "", now_s)
            return
        for rank, (node_id, cards) in enumerate(decision.spots):
            self._place(self._member(decision.request_id, rank), node_id, cards, decision.flavor, now_s)

    def _end(self, member: str, why: str, now_s: float) -> None:
        room = self._ledger.rooms.get(member)
        if room is not None and room.state is ContainerState.REQUESTED:
            self._containers.end(room, ContainerEvent.STOP_ASKED, End.DISCONNECTED, why, now_s)

    def _say(self, decision: Decision, now_s: float) -> None:
        match decision:
            case events.Yielded(member=member):
                self._group.send("tasks", scheduling.YieldContainers(container_ids=(member,)))
            case events.Held(group=group, reasons=reasons):
                self._hold(group, reasons, now_s)
            case events.RoomWanted() as wanted:
                self._want(wanted)
            case events.GangGivenBack(request_id=request_id, pool=pool, nodes=nodes, why=why):
                self._ledger.let_go(nodes)
                self._group.send(f"pool/{pool}", scheduling.GangGivenBack(gang_id=request_id, why=why))
            case _:
                raise TypeError(f"nobody performs {type(decision).__name__}")

    def _member(self, request_id: str, rank: int) -> Room:
        gang = self._ledger.gangs.get(request_id)
        return self._ledger.rooms[request_id] if gang is None else gang[rank]

    def _members(self, request_id: str) -> list[Room]:
        gang = self._ledger.gangs.get(request_id)
        if gang is not None:
            return list(gang.values())
        room = self._ledger.rooms.get(request_id)
        return [] if room is None else [room]

    def _place(self, room: Room, worker_id: str, cards: tuple[int, ...], flavor: str, now_s: float) -> None:
        self._containers.place(room, self._ledger.hosts[worker_id], cards, flavor, now_s)

    def _hold(self, group: str, reasons: tuple[Reason, ...], now_s: float) -> None:
        held = scheduling.ContainerHeld(
            stub_id=group,
            why=" ".join(sentence(reason, now_s) for reason in reasons),
            machines_only=bool(reasons) and reasons[0].machines_only,
            reasons=reasons,
        )
        self._group.send("tasks", held)

    def _want(self, wanted: events.RoomWanted) -> None:
        message = scheduling.RoomWanted(
            pool=wanted.pool,
            shapes=tuple(shape for shape, count in wanted.shapes for _ in range(count)),
            orders_seen=self._ledger.orders.get(wanted.pool, 0),
            gangs=tuple(scheduling.GangWanted(gang.request_id, gang.nodes, gang.workers) for gang in wanted.gangs),
        )
        self._group.send(f"pool/{wanted.pool}", message)
