"""Gangs for which workers are ordered: the room that is there is promised to them, the rest is on its way.

All or nothing, and not for ever: when not all workers are open by the deadline, everything is given back, and the gang
waits a while before anything is ordered for it again.
"""

from __future__ import annotations

from ...model.figures import GANG_READY_S, GANG_RETRY_S
from ...model.reasons import HoldKind, Reason
from ...model.resources import Shape
from .capacity import Standing
from .events import Decision, GangGivenBack, Placed, Promised, Request
from .finding import Finder, Found
from .fleet import Fleet, in_pool
from .live import Live, Tenants
from .queues import Queues
from .reservations import Reservations


class Promises:
    """Every promise, oldest first."""

    def __init__(
        self, fleet: Fleet, tenants: Tenants, finder: Finder, queues: Queues, reservations: Reservations
    ) -> None:
        self.live: dict[str, Live] = {}
        self._fleet = fleet
        self._tenants = tenants
        self._finder = finder
        self._queues = queues
        self._reservations = reservations
        self._not_before_s: dict[str, float] = {}
        self._gave_back: dict[str, str] = {}  # the pool whose workers did not come

    def may(self, request: Request, now_s: float) -> bool:
        """Whether workers may be ordered for this request: not soon after some were given back."""
        return request.gang and now_s >= self._not_before_s.get(request.request_id, 0.0)

    def why_not_yet(self, request: Request) -> Reason:
        """What is told of a gang that gave its workers back, while none are ordered for it."""
        detail = f"not all of its workers came within {GANG_READY_S:g} s; it asks again within {GANG_RETRY_S:g} s."
        pool = self._gave_back.get(request.request_id, "")
        return Reason(kind=HoldKind.GANG, wanted=len(request.members), pool=pool, detail=detail)

    def forget(self, request_id: str) -> None:
        """The request is no more."""
        self._not_before_s.pop(request_id, None)
        self._gave_back.pop(request_id, None)

    def gave_back(self, request_id: str) -> str:
        """The pool that did not have its workers in time when it was asked last: others are asked first."""
        return self._gave_back.get(request_id, "")

    def due(self, now_s: float) -> bool:
        """Whether for some that gave back workers may be ordered again since this was asked last."""
        due = [request_id for request_id, not_before_s in self._not_before_s.items() if now_s >= not_before_s]
        for request_id in due:
            del self._not_before_s[request_id]
        return bool(due)

    def remember(self) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, str], ...]]:
        """Who may not be promised anything yet, and who gave back to which pool, for `recall`."""
        return tuple(self._not_before_s.items()), tuple(self._gave_back.items())

    def recall(self, retries: tuple[tuple[str, float], ...], gave_back: tuple[tuple[str, str], ...]) -> None:
        """Know what another one knew."""
        self._not_before_s, self._gave_back = dict(retries), dict(gave_back)

    def make(self, request: Request, found: Found, now_s: float) -> None:
        """Promise what was found; quota and share are charged from here on."""
        self._queues.admit(request, found.flavor, now_s)
        self._seat(request, found, now_s, now_s + GANG_READY_S)

    def restore(self, promised: Promised, now_s: float) -> None:
        """A promise that another core made."""
        found = Found(
            flavor=promised.flavor,
            shape=in_pool(self._shape_of(promised), promised.pool),
            nodes=promised.nodes,
            pool=promised.pool,
            workers=promised.workers,
            cards=promised.cards,
        )
        self._queues.restore(promised.request, found.flavor, now_s)
        self._seat(promised.request, found, now_s, promised.deadline_s)

    def _shape_of(self, promised: Promised) -> Shape:
        return dict(self._queues.candidates(promised.request)).get(promised.flavor, promised.request.shape)

    def _seat(self, request: Request, found: Found, now_s: float, deadline_s: float, promised: bool = True) -> Live:
        live = found.live(request, now_s)
        live.promised, live.deadline_s = promised, deadline_s
        self._tenants.seat(live, found.cards)
        if promised:
            self.live[request.request_id] = live
        return live

    def review(self, now_s: float, nodes_changed: bool) -> tuple[list[Decision], list[Request]]:
        """Place those whose workers are all there; returns also the requests that have given back and wait again."""
        decisions: list[Decision] = []
        back: list[Request] = []
        for live in tuple(self.live.values()):
            if nodes_changed:
                self._look_again(live, now_s, decisions, back)
            elif now_s >= live.deadline_s:
                decisions.append(self.drop(live, "not all of its workers came in time", now_s))
                self._try_later(live, now_s)
                back.append(live.request)
        return decisions, back

    def _look_again(self, live: Live, now_s: float, decisions: list[Decision], back: list[Request]) -> None:
        request = live.request
        self._tenants.unseat(live)
        del self.live[request.request_id]
        fits = ((live.flavor, live.shape),)
        without = self._reservations.without(request, now_s).difference(live.nodes)  # it keeps what it was promised
        found = self._finder.now(request, fits, without)
        if isinstance(found, Found):
            placed = self._seat(request, found, now_s, 0.0, promised=False)
            decisions.append(Placed(request_id=request.request_id, spots=placed.spots(), flavor=live.flavor))
            self.forget(request.request_id)
            return
        later = self._finder.later(request, fits, without) if now_s < live.deadline_s else None
        if later is not None:
            self._seat(request, later, now_s, live.deadline_s)
            return
        if now_s < live.deadline_s:  # its nodes are others now, and may be again what they were: that is no failure
            decisions.append(self._refund(live, "there is room for it no more", now_s))
        else:
            decisions.append(self._refund(live, "not all of its workers came in time", now_s))
            self._try_later(live, now_s)
        back.append(request)

    def _try_later(self, live: Live, now_s: float) -> None:
        self._not_before_s[live.request.request_id] = now_s + GANG_RETRY_S
        self._gave_back[live.request.request_id] = live.pool

    def drop(self, live: Live, why: str, now_s: float) -> GangGivenBack:
        """Undo a promise."""
        self._tenants.unseat(live)
        del self.live[live.request.request_id]
        return self._refund(live, why, now_s)

    def _refund(self, live: Live, why: str, now_s: float) -> GangGivenBack:
        request_id = live.request.request_id
        for _ in live.members:
            self._queues.end_member(request_id, now_s)
        for node_id in dict.fromkeys(live.nodes):
            node = self._fleet.nodes.get(node_id)
            if node is not None:
                self._queues.wake_room(*node.takers())
        nodes = tuple(dict.fromkeys(node_id for node_id in live.nodes if self._has_worker(node_id)))
        return GangGivenBack(request_id=request_id, pool=live.pool, nodes=nodes, why=why)

    def _has_worker(self, node_id: str) -> bool:
        node = self._fleet.nodes.get(node_id)
        return node is not None and node.standing is not Standing.OFFERED
