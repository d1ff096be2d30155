"""Why requests wait, told group by group whenever it changes; and what pools are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from ...model.reasons import HoldKind, Reason
from ...model.resources import Shape
from .board import Board
from .capacity import Standing
from .discretion import Discretion
from .events import Decision, Held, Request
from .finding import Fits
from .holders import Holders
from .live import Lacking
from .roomless import Roomless
from .wants import Waiting, Wants

MANY_GROUPS: Final = 32  # while more groups wait than that, reasons are told
TELL_EVERY_S: Final = 0.25  # this often only
COUNTED_AT_ONCE: Final = (
    4_096  # workers on their way that are looked at for wishes: while it would be more, so are they
)
EXPLAINED_AT_ONCE: Final = 64
TOLD_AGAIN_S: Final = 5.0  # a wish that got lost, because its pool was just starting, is made again
_FOR_WANT_OF_MACHINES: Final = frozenset(
    {HoldKind.ROOM, HoldKind.STARTING, HoldKind.TOPOLOGY, HoldKind.GANG, HoldKind.MAXIMUM}
)
_NOT_FOR_WANT_OF_MACHINES: Final = frozenset({HoldKind.GUARD, HoldKind.BACK_OFF})


class _Parked(msgspec.Struct, frozen=True, kw_only=True):
    """One of a group's requests, what stands against it, and its flavors with quota, if any."""

    request: Request
    why: Reason | None
    fits: Fits
    stopping: bool


class Holding:
    """The part of the core that explains."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._wants = Wants(board.fleet)
        self._parked: dict[str, _Parked] = {}
        self._told: dict[str, tuple[Reason, ...]] = {}
        self._freed: dict[str, None] = {}
        self._tell_at_s = 0.0
        self._again_at_s = 0.0
        self.holders = Holders(board)
        self._rooms = Roomless(board)
        self._discretion = Discretion(board.fleet)

    def hold(self, request: Request, why: Reason | None, fits: Fits, stopping: bool) -> None:
        """A request was looked at, and must wait. `why` is None where there is just no room."""
        self._parked.pop(request.group, None)  # so that they stand in the order in which they were looked at
        self._parked[request.group] = _Parked(request=request, why=why, fits=fits, stopping=stopping)
        self._freed.pop(request.group, None)

    def free(self, group: str) -> None:
        """Nobody of this group waits any more."""
        self._parked.pop(group, None)
        if group in self._told:
            self._freed[group] = None

    def longest_roomless(self) -> Iterator[tuple[Request, Fits]]:
        """Those parked for room, longest waiting first."""
        waiting = self._board.waiting
        roomless = [one for one in self._parked.values() if one.fits and one.request.request_id in waiting]
        for parked in sorted(roomless, key=lambda one: (one.request.requested_at_s, one.request.request_id)):
            yield parked.request, parked.fits

    def tell_again(self, now_s: float) -> None:
        """Every few seconds all wishes and reasons are told again."""
        if now_s >= self._again_at_s:
            self._again_at_s = now_s + TOLD_AGAIN_S
            self._wants.forget_told()
            self._told = dict.fromkeys(self._told, ())

    def forget(self) -> None:
        """Nothing was told, and nothing is known of why anybody waits."""
        self._parked.clear()
        self._told.clear()
        self._freed.clear()
        self._wants.forget_told()
        self._tell_at_s = self._again_at_s = 0.0
        self.holders.forget()

    def tell_all(self, reason: Reason) -> list[Decision]:
        """The same reason for all that wait."""
        groups = dict.fromkeys(request.group for request in self._board.waiting.values())
        return [self._say(group, (reason,)) for group in groups if self._told.get(group) != (reason,)]

    def tell(self) -> list[Decision]:
        """What has changed of wishes and reasons."""
        decisions: list[Decision] = [Held(group=group) for group in self._freed]
        for group in self._freed:
            self._told.pop(group, None)
        self._freed.clear()
        now_s = self._board.now_s
        early = now_s < self._tell_at_s
        if early and self._takes_long():
            return decisions
        lacking = self._board.lacking.values()
        wishes, starting = self._wants.tell(self._roomless(), self._board.promises.live.values(), lacking)
        decisions += wishes
        if early and len(self._parked) > MANY_GROUPS:
            return decisions
        self._tell_at_s = now_s + TELL_EVERY_S
        self._rooms.forget()
        for group, workspace, told in self._reasons(starting):
            reasons = self._discretion.told(told, workspace)
            if self._told.get(group) != reasons:
                decisions.append(self._say(group, reasons))
        return decisions

    def _takes_long(self) -> bool:
        """Whether it takes long to see what is lacking beyond what is on its way: that is looked at for each kind."""
        kinds = {(one.request.workspace, one.fits[0][1]) for one in self._parked.values() if one.fits}
        return len(self._parked) + len(kinds) * len(self._board.fleet.coming) > COUNTED_AT_ONCE

    def _say(self, group: str, reasons: tuple[Reason, ...]) -> Held:
        self._told[group] = reasons
        return Held(group=group, reasons=reasons)

    def _roomless(self) -> list[Waiting]:
        in_group = self._board.in_group
        return [
            Waiting(parked.request, tuple(shape for _, shape in parked.fits), in_group.get(group, 0))
            for group, parked in self._parked.items()
            if parked.fits
        ] + [
            Waiting(one.request, (one.shape,), one.count, apart=True)
            for one in self._board.lacking.values()
            if one.count
        ]

    # Reasons

    def _reasons(self, starting: set[str]) -> Iterator[tuple[str, str, tuple[Reason, ...]]]:
        """By group: whose it is, and why it waits."""
        for group, parked in self._next_to_explain():
            yield group, parked.request.workspace, self._reasons_of(parked, group in starting)
        for live in self._board.promises.live.values():
            held = self._pool_holds(live.request, live.shape)
            of = len(live.members)
            have = of - sum(not self._is_open(node_id) for node_id in live.nodes)
            reason = Reason(kind=HoldKind.GANG, fits=have, wanted=of, pool=live.pool)
            if live.request.group not in self._parked:
                yield live.request.group, live.request.workspace, (reason, *held)
        promised = {live.request.group for live in self._board.promises.live.values()}
        for group, lacking in self._first_lacking().items():
            if group not in self._parked and group not in promised:
                yield group, lacking.request.workspace, self._with_holds(lacking.request, lacking.shape, lacking.why)

    def _first_lacking(self) -> dict[str, Lacking]:
        """Of gangs that have lost members, the first of each group."""
        first: dict[str, Lacking] = {}
        for lacking in self._board.lacking.values():
            first.setdefault(lacking.request.group, lacking)
        return first

    def _next_to_explain(self) -> list[tuple[str, _Parked]]:
        """All, or of many those whose turn it is: they go to the end of the line, as a new word about them would."""
        if len(self._parked) <= MANY_GROUPS:
            return list(self._parked.items())
        untold = [group for group in self._parked if group not in self._told]
        turn = list(islice((*untold, *self._told), EXPLAINED_AT_ONCE))
        for group in turn:
            if group in self._told:
                self._told[group] = self._told.pop(group)
        return [(group, self._parked[group]) for group in turn if group in self._parked]

    def _is_open(self, node_id: str) -> bool:
        node = self._board.fleet.nodes.get(node_id)
        return node is not None and node.standing is Standing.OPEN

    def _reasons_of(self, parked: _Parked, starting: bool) -> tuple[Reason, ...]:
        request = parked.request
        ahead = self._board.queues.ahead(request.request_id)
        if parked.stopping:
            return (Reason(kind=HoldKind.PREEMPTING, ahead=ahead),)
        if parked.why is not None and not parked.fits:
            now = self._board.queues.check(request, self._board.now_s)
            why = now if isinstance(now, Reason) else parked.why
            return (msgspec.structs.replace(why, ahead=ahead, holders=self.holders.of(request, why)),)
        shape = parked.fits[0][1]
        return self._with_holds(request, shape, parked.why or self._rooms.why(request, shape, starting), ahead)

    def _with_holds(self, request: Request, shape: Shape, room: Reason, ahead: int = 0) -> tuple[Reason, ...]:
        holds = self._pool_holds(request, shape)
        machines_only = (
            room.kind in _FOR_WANT_OF_MACHINES
            and request.group not in self._board.tenants.starting
            and not any(hold.kind in _NOT_FOR_WANT_OF_MACHINES for hold in holds)
        )
        holders = self.holders.of(request, room)
        return (msgspec.structs.replace(room, ahead=ahead, holders=holders, machines_only=machines_only), *holds)

    def _pool_holds(self, request: Request, shape: Shape) -> tuple[Reason, ...]:
        holds: list[Reason] = []
        for pool in self._board.fleet.eligible(request.workspace, shape.pool):
            for key in ("", request.request_id):
                if key in pool.holds:
                    hold = pool.holds[key]  # what of all this counts towards `wait_s` is decided of all of it at once
                    holds.append(msgspec.structs.replace(hold, pool=pool.name, machines_only=False))
        return tuple(holds)
