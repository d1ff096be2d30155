"""Requests from their asking to their end: who gets room now, who is promised some, who makes room, who is parked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...model.queues import DEFAULT
from ...model.reasons import Reason
from ...model.resources import Shape
from . import events
from .board import Board
from .events import Decision, Request, Stopping
from .finding import Fits, Found
from .fleet import in_pool
from .holding import Holding
from .lanes import Parked
from .live import Lacking, Live
from .reservations import RESERVE_AFTER_S

UNSEEN_MAX: Final = 256  # in one plan


class Admitting:
    """The part of the core that follows requests."""

    def __init__(self, board: Board, holding: Holding) -> None:
        self._board = board
        self._holding = holding
        self._request_of: dict[str, str] = {}  # by member, of those that wait
        self._victims: dict[str, dict[str, None]] = {}  # by request: those that stop to make room for it
        self._due: dict[str, None] = {}  # requests for whom nodes are reserved, and somebody alike may not use them
        self._were_due: dict[str, None] = {}  # in this slice: two would make each other due without end

    # Asking and ending

    def request(self, request: Request) -> None:
        """Knowing one twice is knowing it once."""
        if request.request_id in self._board.waiting or request.request_id in self._board.tenants.by_request:
            return
        self._wait(request)
        self._board.fleet.saw(request.workspace, request.shape, len(request.members))

    def _wait(self, request: Request) -> None:
        self._board.waiting[request.request_id] = request
        for member in request.members:
            self._request_of[member] = request.request_id
        self._board.in_group[request.group] = self._board.in_group.get(request.group, 0) + 1
        self._board.queues.add(request, self._board.now_s)

    def _wait_no_more(self, request: Request) -> None:
        del self._board.waiting[request.request_id]
        for member in request.members:
            del self._request_of[member]
        self._board.reservations.release(request.request_id)
        self._wake_for_opened()
        self._victims.pop(request.request_id, None)
        left = self._board.in_group[request.group] - 1
        self._board.in_group[request.group] = left
        if not left:
            del self._board.in_group[request.group]
        self._tell_free(request.group)

    def _tell_free(self, group: str) -> None:
        if group not in self._board.in_group:
            self._holding.free(group)

    def end(self, member: str) -> list[Decision]:
        """A member needs no room any more. While its gang waits for room, that ends the whole gang."""
        if self._board.lost.pop(member, None) is not None:
            return []
        request_id = self._request_of.get(member)
        if request_id is not None:
            self._board.queues.withdraw(request_id)
            self._wait_no_more(self._board.waiting[request_id])
            self._board.promises.forget(request_id)
            return []
        known = self._board.tenants.by_member.get(member)
        return [] if known is None else self._end_live(*known)

    def _end_live(self, request_id: str, rank: int) -> list[Decision]:
        board = self._board
        live = board.tenants.by_request[request_id]
        if live.promised:
            self._stops_no_more(request_id)
            board.promises.forget(request_id)
            return [board.promises.drop(live, "it is no longer wanted", board.now_s)]
        node = board.tenants.leave(live, rank)
        board.queues.end_member(request_id, board.now_s)
        if not any(live.members):
            del board.tenants.by_request[request_id]
            self._stops_no_more(request_id)
        if node is not None:
            board.wake_by(node)
        return []

    def _stops_no_more(self, request_id: str) -> None:
        for victims in self._victims.values():
            victims.pop(request_id, None)

    def started(self, member: str) -> None:
        """A member's container is ready."""
        known = self._board.tenants.by_member.get(member)
        if known is not None:
            live = self._board.tenants.by_request[known[0]]
            self._board.tenants.started(live, known[1])
            self._board.queues.started(known[0], self._board.now_s)

    def restore(self, restored: events.Restored) -> None:
        """An earlier leader placed it. Members without a node have ended already."""
        board, request, spots, flavor = self._board, restored.request, restored.spots, restored.flavor
        shape = dict(board.queues.candidates(request)).get(flavor, request.shape)
        live = Live(
            request=request,
            flavor=flavor,
            shape=in_pool(shape, restored.pool) if restored.pool else shape,
            nodes=[node_id for node_id, _ in spots],
            cards=[cards for _, cards in spots],
            members=list(request.members),
            since_s=restored.since_s or board.now_s,
        )
        board.queues.restore(request, flavor, board.now_s)
        board.tenants.seat(live, tuple(cards for _, cards in spots))
        for _ in range(live.members.count("")):
            board.queues.end_member(request.request_id, board.now_s)

    def remember(self) -> Stopping:
        """Who stops for whom, for `recall`."""
        return tuple((request_id, tuple(victims)) for request_id, victims in self._victims.items())

    def recall(self, stopping: Stopping) -> None:
        """Know what another one knew."""
        self._victims = {request_id: dict.fromkeys(victims) for request_id, victims in stopping}

    def forget(self) -> None:
        """All are looked at in their turn."""
        self._due.clear()
        self._were_due.clear()

    # Deciding

    def settle(self, nodes_changed: bool) -> list[Decision]:
        """First come promises, oldest first, and members of gangs that were lost."""
        self._were_due.clear()
        self._board.reservations.renew(self._board.now_s)
        self._wake_for_opened()
        decisions, back = self._board.promises.review(self._board.now_s, nodes_changed)
        for decision in decisions:
            if isinstance(decision, events.Placed):
                self._tell_free(self._board.tenants.by_request[decision.request_id].request.group)
        for request in back:
            self._stops_no_more(request.request_id)
            self._wait(request)
        lacked, self._board.lacking = self._board.lacking, {}
        for member, (request_id, rank) in tuple(self._board.lost.items()):
            decisions += self._replace(member, request_id, rank)
        for request_id, lacking in lacked.items():
            if request_id not in self._board.lacking:
                self._tell_free(lacking.request.group)
        return decisions

    def next(self) -> Request | None:
        """Whose turn it is: room that is reserved is there for one request, whoever else goes before it."""
        while self._due:
            request_id = next(iter(self._due))
            del self._due[request_id]
            if request_id in self._board.waiting:
                return self._board.waiting[request_id]
        return self._board.queues.next(self._board.now_s)

    def look_at(self, request: Request) -> list[Decision]:
        """Place the request that is next, or find out why it must wait."""
        board = self._board
        fits = board.queues.check(request, board.now_s)
        if isinstance(fits, Reason):
            victims = self._preempt(request)
            if victims and not self._stopping(request):
                return [*victims, *self.look_at(request)]
            board.queues.park(request.request_id, Parked.QUOTA)
            self._holding.hold(request, fits, (), self._stopping(request))
            return victims
        without = board.reservations.without(request, board.now_s)
        found = board.finder.now(request, fits, without)
        if isinstance(found, Found):
            return [self._place(request, found)]
        if board.promises.may(request, board.now_s):
            later = board.finder.later(request, fits, without, board.promises.gave_back(request.request_id))
            if later is not None:
                board.promises.make(request, later, board.now_s)
                self._wait_no_more(request)
                return []
        victims = self._preempt(request)
        if victims and not self._stopping(request):
            return [*victims, *self.look_at(request)]
        if without:
            alike = (one for one in board.reservations.holders() if board.queues.alike(one, request.request_id))
            self._due.update((one, None) for one in alike if one != request.request_id and one not in self._were_due)
            self._were_due.update(self._due)
        board.queues.park(request.request_id, Parked.ROOM, reserved=bool(without))
        self._holding.hold(request, self._why(request, fits, without), fits, self._stopping(request))
        return victims

    def _why(self, request: Request, fits: Fits, without: frozenset[str]) -> Reason | None:
        """What keeps a gang out: what is lacking even with all workers that could start, or that those did not come."""
        board = self._board
        if not request.gang:
            return None
        early = not board.promises.may(request, board.now_s)
        if early and board.finder.later(request, fits, without) is not None:
            return board.promises.why_not_yet(request)
        return board.finder.why(request, fits, without)

    def look_at_the_rest(self) -> list[Decision]:
        """Groups that stand behind others like them wait for the same reason: it is told to each.

        Those others may be of the same kind and of a lower priority: each group has its own try at who must stop.
        """
        board = self._board
        decisions: list[Decision] = []
        for _ in range(UNSEEN_MAX):
            request = board.queues.unseen()
            if request is None:
                break
            fits = board.queues.check(request, board.now_s)
            victims = self._preempt(request)
            decisions += victims
            if victims and not self._stopping(request):
                decisions += self.look_at(request)
            elif isinstance(fits, Reason):
                self._holding.hold(request, fits, (), self._stopping(request))
            else:
                self._holding.hold(request, None, fits, self._stopping(request))
        return decisions

    def _place(self, request: Request, found: Found) -> Decision:
        board = self._board
        live = found.live(request, board.now_s)
        board.queues.admit(request, found.flavor, board.now_s)
        board.tenants.seat(live, found.cards)
        self._wait_no_more(request)
        board.promises.forget(request.request_id)
        return events.Placed(request_id=request.request_id, spots=live.spots(), flavor=found.flavor)

    # Lost members

    def await_replacement(self, request_id: str, rank: int, member: str) -> list[Decision]:
        """This container takes the place of a member that was lost; asked twice it is asked once."""
        live = self._board.tenants.by_request.get(request_id)
        if member in self._board.lost or (live is not None and member in live.members):
            return []
        if live is not None and (live.promised or not 0 <= rank < len(live.members)):
            return [events.NotReplaced(member=member, why="nothing is left of its gang")]
        if live is not None and (live.members[rank] or (request_id, rank) in self._board.lost.values()):
            return [events.NotReplaced(member=member, why=f"rank {rank} of its gang has a container already")]
        self._board.lost[member] = (request_id, rank)
        return []

    def _replace(self, member: str, request_id: str, rank: int) -> list[Decision]:
        board = self._board
        live = board.tenants.by_request.get(request_id)
        if live is None or live.members[rank]:
            self._board.lost.pop(member)
            why = "nothing is left of its gang" if live is None else f"rank {rank} of its gang has a container already"
            return [events.NotReplaced(member=member, why=why)]
        ranks = tuple(sorted(other for lost_of, other in self._board.lost.values() if lost_of == request_id))
        short = board.queues.lacks_for_members(request_id, len(ranks), board.now_s)
        if short is not None:
            self._board.lacking.setdefault(request_id, Lacking(request=live.request, shape=live.shape, why=short))
            return []
        nodes = board.finder.near(live, ranks)
        if isinstance(nodes, Reason):
            if request_id not in self._board.lacking:
                self._board.lacking[request_id] = board.finder.lacking(live, ranks, nodes)
            return []
        node_id = nodes[ranks.index(rank)]
        self._board.lost.pop(member)
        board.tenants.replace(live, rank, member, board.fleet.nodes[node_id])
        board.queues.readmit_member(request_id, board.now_s)
        cards = live.cards[rank]
        return [events.Replaced(request_id=request_id, rank=rank, member=member, node_id=node_id, cards=cards)]

    # Making room

    def _stopping(self, request: Request) -> bool:
        return bool(self._victims.get(request.request_id))

    def _preempt(self, request: Request) -> list[Decision]:
        """Those who must stop so that this request has quota and room; nobody while earlier ones are still stopping."""
        board = self._board
        if self._stopping(request):
            return []
        for flavor, shape in board.queues.candidates(request):
            fits = ((flavor, shape),)

            def enough(victims: tuple[str, ...], fits: Fits = fits) -> bool:
                with self._without(victims):
                    return isinstance(board.finder.now(request, fits), Found)

            victims = board.queues.victims(request, flavor, enough, board.now_s)
            if victims:
                self._victims[request.request_id] = dict.fromkeys(victims)
                return [self._stop(victim, request) for victim in victims]
        return []

    def _stop(self, victim: str, request: Request) -> Decision:
        """A gang that has only a promise has nothing to stop: it gives that back, and waits again."""
        board = self._board
        live = board.tenants.by_request[victim]
        why = self._why_stop(live.request, request)
        if not live.promised:
            return events.Preempted(request_id=victim, by_workspace=request.workspace, why=why)
        self._stops_no_more(victim)
        back = board.promises.drop(live, why, board.now_s)
        self._wait(live.request)
        return back

    def _why_stop(self, victim: Request, request: Request) -> str:
        """In words for the victim: of another quota it only hears that what was lent is taken back."""
        queues = self._board.queueing.queues
        quota_of = {(queue.workspace, queue.name): queue.quota for queue in queues}
        quotas = (quota_of.get((each.workspace, each.queue), DEFAULT) for each in (victim, request))
        if next(quotas) != next(quotas):
            return "quota that its queue had borrowed is taken back"
        if victim.priority == request.priority:
            return f"a request of the same priority that was made earlier needs its room ({request.priority})"
        return f"a request of higher priority needs its room ({request.priority})"

    @contextmanager
    def _without(self, victims: tuple[str, ...]) -> Iterator[None]:
        """As it would be if these had stopped."""
        board = self._board
        removed = [board.tenants.by_request[victim] for victim in victims]
        for live in removed:
            board.tenants.lift(live)
        yield
        for live in removed:
            board.tenants.put_back(live)

    # Room kept for those who wait long

    def reserve(self) -> None:
        """Who has waited too long at the head of its pool gets nodes that others leave alone."""
        board = self._board
        self._wake_for_opened()
        for request, fits in self._holding.longest_roomless():
            if board.now_s - request.requested_at_s < RESERVE_AFTER_S:
                return
            for shape in self._by_pool(request, fits):
                if board.reservations.reserve(request, shape, board.now_s) is not None:
                    break

    def _wake_for_opened(self) -> None:
        """Nodes that were kept for somebody are anybody's again."""
        for node_id in self._board.reservations.opened():
            node = self._board.fleet.nodes.get(node_id)
            if node is not None:
                self._board.wake_by(node)

    def _by_pool(self, request: Request, fits: Fits) -> Iterator[Shape]:
        for _, shape in fits:
            for pool in self._board.fleet.eligible(request.workspace, shape.pool):
                yield in_pool(shape, pool.name)
