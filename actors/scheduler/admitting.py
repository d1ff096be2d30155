"""Requests from their asking to their end: who gets room now, who is promised some, who makes room, who is parked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...model.queues import DEFAULT
from ...model.reasons import Reason
from ...model.resources import Shape
from . import events
from .events import Decision, Request
from .finding import Fits, Found
from .fleet import in_pool
from .lanes import Parked
from .live import Lacking, Live
from .reservations import RESERVE_AFTER_S

if TYPE_CHECKING:
    from .core import Core


UNSEEN_MAX: Final = 256  # in one plan


class Admitting:
    """The part of the core that follows requests."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.waiting: dict[str, Request] = {}
        self.in_group: dict[str, int] = {}  # requests that wait
        self._request_of: dict[str, str] = {}  # by member, of those that wait
        self.lost: dict[str, tuple[str, int]] = {}  # by member that replaces one: its request and rank
        self.lacking: dict[str, Lacking] = {}  # by request: what it takes to replace those whom it lost
        self._victims: dict[str, dict[str, None]] = {}  # by request: those that stop to make room for it
        self._due: dict[str, None] = {}  # requests for whom nodes are reserved, and somebody alike may not use them

    # Asking and ending

    def request(self, request: Request) -> None:
        """Knowing one twice is knowing it once."""
        if request.request_id in self.waiting or request.request_id in self._core.tenants.by_request:
            return
        self._wait(request)
        self._core.fleet.saw(request.workspace, request.shape, len(request.members))

    def _wait(self, request: Request) -> None:
        self.waiting[request.request_id] = request
        for member in request.members:
            self._request_of[member] = request.request_id
        self.in_group[request.group] = self.in_group.get(request.group, 0) + 1
        self._core.queues.add(request, self._core.now_s)

    def _wait_no_more(self, request: Request) -> None:
        del self.waiting[request.request_id]
        for member in request.members:
            del self._request_of[member]
        self._core.reservations.release(request.request_id)
        self._wake_for_opened()
        self._victims.pop(request.request_id, None)
        left = self.in_group[request.group] - 1
        self.in_group[request.group] = left
        if not left:
            del self.in_group[request.group]
        self._tell_free(request.group)

    def _tell_free(self, group: str) -> None:
        if group not in self.in_group:
            self._core.holding.free(group)

    def end(self, member: str) -> list[Decision]:
        """A member needs no room any more. While its gang waits for room, that ends the whole gang."""
        if self.lost.pop(member, None) is not None:
            return []
        request_id = self._request_of.get(member)
        if request_id is not None:
            self._core.queues.withdraw(request_id)
            self._wait_no_more(self.waiting[request_id])
            self._core.promises.forget(request_id)
            return []
        known = self._core.tenants.by_member.get(member)
        return [] if known is None else self._end_live(*known)

    def _end_live(self, request_id: str, rank: int) -> list[Decision]:
        core = self._core
        live = core.tenants.by_request[request_id]
        if live.promised:
            self._stops_no_more(request_id)
            core.promises.forget(request_id)
            return [core.promises.drop(live, "it is no longer wanted", core.now_s)]
        node = core.tenants.leave(live, rank)
        core.queues.end_member(request_id, core.now_s)
        if not any(live.members):
            del core.tenants.by_request[request_id]
            self._stops_no_more(request_id)
        if node is not None:
            core.wake_by(node)
        return []

    def _stops_no_more(self, request_id: str) -> None:
        for victims in self._victims.values():
            victims.pop(request_id, None)

    def started(self, member: str) -> None:
        """A member's container is ready."""
        known = self._core.tenants.by_member.get(member)
        if known is not None:
            live = self._core.tenants.by_request[known[0]]
            self._core.tenants.started(live, known[1])
            self._core.queues.started(known[0], self._core.now_s)

    def restore(self, restored: events.Restored) -> None:
        """An earlier leader placed it. Members without a node have ended already."""
        core, request, spots, flavor = self._core, restored.request, restored.spots, restored.flavor
        shape = dict(core.queues.candidates(request)).get(flavor, request.shape)
        live = Live(
            request=request,
            flavor=flavor,
            shape=in_pool(shape, restored.pool) if restored.pool else shape,
            nodes=[node_id for node_id, _ in spots],
            cards=[cards for _, cards in spots],
            members=list(request.members),
            since_s=restored.since_s or core.now_s,
        )
        core.queues.restore(request, flavor, core.now_s)
        core.tenants.seat(live, tuple(cards for _, cards in spots))
        for _ in range(live.members.count("")):
            core.queues.end_member(request.request_id, core.now_s)

    def remember(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Who stops for whom, for `recall`."""
        return tuple((request_id, tuple(victims)) for request_id, victims in self._victims.items())

    def recall(self, stopping: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        """Know what another one knew."""
        self._victims = {request_id: dict.fromkeys(victims) for request_id, victims in stopping}

    def forget(self) -> None:
        """All are looked at in their turn."""
        self._due.clear()

    # Deciding

    def settle(self, nodes_changed: bool) -> list[Decision]:
        """First come promises, oldest first, and members of gangs that were lost."""
        self._core.reservations.renew(self._core.now_s)
        self._wake_for_opened()
        decisions, back = self._core.promises.review(self._core.now_s, nodes_changed)
        for decision in decisions:
            if isinstance(decision, events.Placed):
                self._tell_free(self._core.tenants.by_request[decision.request_id].request.group)
        for request in back:
            self._stops_no_more(request.request_id)
            self._wait(request)
        lacked, self.lacking = self.lacking, {}
        for member, (request_id, rank) in tuple(self.lost.items()):
            decisions += self._replace(member, request_id, rank)
        for request_id, lacking in lacked.items():
            if request_id not in self.lacking:
                self._tell_free(lacking.request.group)
        return decisions

    def next(self) -> Request | None:
        """Whose turn it is: room that is reserved is there for one request, whoever else goes before it."""
        while self._due:
            request_id = next(iter(self._due))
            del self._due[request_id]
            if request_id in self.waiting:
                return self.waiting[request_id]
        return self._core.queues.next(self._core.now_s)

    def look_at(self, request: Request) -> list[Decision]:
        """Place the request that is next, or find out why it must wait."""
        core = self._core
        fits = core.queues.check(request, core.now_s)
        if isinstance(fits, Reason):
            victims = self._preempt(request)
            if victims and not self._stopping(request):
                return [*victims, *self.look_at(request)]
            core.queues.park(request.request_id, Parked.QUOTA)
            core.holding.hold(request, fits, (), self._stopping(request))
            return victims
        without = core.reservations.without(request, core.now_s)
        found = core.finder.now(request, fits, without)
        if isinstance(found, Found):
            return [self._place(request, found)]
        if core.promises.may(request, core.now_s):
            later = core.finder.later(request, fits, without, core.promises.gave_back(request.request_id))
            if later is not None:
                core.promises.make(request, later, core.now_s)
                self._wait_no_more(request)
                return []
        victims = self._preempt(request)
        if victims and not self._stopping(request):
            return [*victims, *self.look_at(request)]
        if without:
            alike = (one for one in core.reservations.holders() if core.queues.alike(one, request.request_id))
            self._due.update((one, None) for one in alike if one != request.request_id)
        core.queues.park(request.request_id, Parked.ROOM, reserved=bool(without))
        core.holding.hold(request, found, fits, self._stopping(request))
        return victims

    def look_at_the_rest(self) -> list[Decision]:
        """Groups that stand behind others like them wait for the same reason: it is told to each.

        Those others may be of the same kind and of a lower priority: each group has its own try at who must stop.
        """
        core = self._core
        decisions: list[Decision] = []
        for _ in range(UNSEEN_MAX):
            request = core.queues.unseen()
            if request is None:
                break
            fits = core.queues.check(request, core.now_s)
            victims = self._preempt(request)
            decisions += victims
            if victims and not self._stopping(request):
                decisions += self.look_at(request)
            elif isinstance(fits, Reason):
                core.holding.hold(request, fits, (), self._stopping(request))
            else:
                core.holding.hold(request, None, fits, self._stopping(request))
        return decisions

    def _place(self, request: Request, found: Found) -> Decision:
        core = self._core
        live = Live(
            request=request,
            flavor=found.flavor,
            shape=found.shape,
            nodes=list(found.nodes),
            cards=[()] * len(found.nodes),
            members=list(request.members),
            since_s=core.now_s,
        )
        core.queues.admit(request, found.flavor, core.now_s)
        core.tenants.seat(live, found.cards)
        self._wait_no_more(request)
        core.promises.forget(request.request_id)
        return events.Placed(request_id=request.request_id, spots=live.spots(), flavor=found.flavor)

    # Lost members

    def await_replacement(self, request_id: str, rank: int, member: str) -> list[Decision]:
        """This container takes the place of a member that was lost; asked twice it is asked once."""
        live = self._core.tenants.by_request.get(request_id)
        if member in self.lost or (live is not None and member in live.members):
            return []
        if live is None or live.promised or not 0 <= rank < len(live.members):
            return [events.NotReplaced(member=member, why="nothing is left of its gang")]
        if live.members[rank] or (request_id, rank) in self.lost.values():
            return [events.NotReplaced(member=member, why=f"rank {rank} of its gang has a container already")]
        self.lost[member] = (request_id, rank)
        return []

    def _replace(self, member: str, request_id: str, rank: int) -> list[Decision]:
        core = self._core
        live = core.tenants.by_request.get(request_id)
        if live is None or live.members[rank]:
            self.lost.pop(member)
            why = "nothing is left of its gang" if live is None else f"rank {rank} of its gang has a container already"
            return [events.NotReplaced(member=member, why=why)]
        ranks = tuple(sorted(other for lost_of, other in self.lost.values() if lost_of == request_id))
        short = core.queues.lacks_for_members(request_id, len(ranks), core.now_s)
        if short is not None:
            self.lacking.setdefault(request_id, Lacking(request=live.request, shape=live.shape, why=short))
            return []
        nodes = core.finder.near(live, ranks)
        if isinstance(nodes, Reason):
            if request_id not in self.lacking:
                self.lacking[request_id] = core.finder.lacking(live, ranks, nodes)
            return []
        node_id = nodes[ranks.index(rank)]
        self.lost.pop(member)
        core.tenants.replace(live, rank, member, core.fleet.nodes[node_id])
        core.queues.readmit_member(request_id, core.now_s)
        cards = live.cards[rank]
        return [events.Replaced(request_id=request_id, rank=rank, member=member, node_id=node_id, cards=cards)]

    # Making room

    def _stopping(self, request: Request) -> bool:
        return bool(self._victims.get(request.request_id))

    def _preempt(self, request: Request) -> list[Decision]:
        """Those who must stop so that this request has quota and room; nobody while earlier ones are still stopping."""
        core = self._core
        if self._stopping(request):
            return []
        for flavor, shape in core.queues.candidates(request):
            fits = ((flavor, shape),)

            def enough(victims: tuple[str, ...], fits: Fits = fits) -> bool:
                with self._without(victims):
                    return isinstance(core.finder.now(request, fits), Found)

            victims = core.queues.victims(request, flavor, enough, core.now_s)
            if victims:
                self._victims[request.request_id] = dict.fromkeys(victims)
                return [self._stop(victim, request) for victim in victims]
        return []

    def _stop(self, victim: str, request: Request) -> Decision:
        """A gang that has only a promise has nothing to stop: it gives that back, and waits again."""
        core = self._core
        live = core.tenants.by_request[victim]
        why = self._why_stop(live.request, request)
        if not live.promised:
            return events.Preempted(request_id=victim, by_workspace=request.workspace, why=why)
        self._stops_no_more(victim)
        back = core.promises.drop(live, why, core.now_s)
        self._wait(live.request)
        return back

    def _why_stop(self, victim: Request, request: Request) -> str:
        """In words for the victim: of another quota it only hears that what was lent is taken back."""
        queues = self._core.queueing.queues
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
        core = self._core
        removed = [core.tenants.by_request[victim] for victim in victims]
        for live in removed:
            core.tenants.lift(live)
        yield
        for live in removed:
            core.tenants.put_back(live)

    # Room kept for those who wait long

    def reserve(self) -> None:
        """Who has waited too long at the head of its pool gets nodes that others leave alone."""
        core = self._core
        self._wake_for_opened()
        for request, fits in core.holding.longest_roomless():
            if core.now_s - request.requested_at_s < RESERVE_AFTER_S:
                return
            for shape in self._by_pool(request, fits):
                if core.reservations.reserve(request, shape, core.now_s) is not None:
                    break

    def _wake_for_opened(self) -> None:
        """Nodes that were kept for somebody are anybody's again."""
        for node_id in self._core.reservations.opened():
            node = self._core.fleet.nodes.get(node_id)
            if node is not None:
                self._core.wake_by(node)

    def _by_pool(self, request: Request, fits: Fits) -> Iterator[Shape]:
        for _, shape in fits:
            for pool in self._core.fleet.eligible(request.workspace, shape.pool):
                yield in_pool(shape, pool.name)
