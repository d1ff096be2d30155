"""Who goes first and who may have how much: the one face of backlog, quotas and fair shares.

Whoever places asks for the next request, checks where it has quota, and admits or parks it. Quota is charged when a
request is admitted and refunded member by member as they end; nothing else changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Final

import msgspec

from ...model.queues import Queueing
from ...model.reasons import Reason
from ...model.resources import Amount, Shape
from .backlog import Backlog
from .events import Request
from .fairness import Fairness, FairnessPast
from .grants import Grant, Grants
from .lanes import Lane, Line, Parked, Row, Space, kind_of, order_of
from .limits import over_limit
from .preemption import Preemption, may_preempt
from .quotas import Option, QuotaState, fits
from .refusals import held, lacking
from .rows import Rows
from .saving import SaverPast, Saving
from .standings import Standings, standings
from .waits import QuotaWaits
from .yielding import YIELDS_MAX, WouldHelp, Yielding, anybody

Ways = tuple[tuple[str, Shape], ...]  # flavors in order, each with the shape as it must be placed there

NO_QUEUEING: Final = Queueing()
SWEEP_MS: Final = 1000  # how often is looked for whom quota should be saved
STOPPED_MAX: Final = 10_000  # requests of which is remembered how often they were stopped for others


class _Memory(msgspec.Struct, frozen=True, array_like=True):
    fairness: FairnessPast
    started: tuple[tuple[str, int, int], ...]  # admitted request, when it was admitted, when it started
    asked: tuple[tuple[str, tuple[str, str]], ...]
    savers: tuple[SaverPast, ...]
    stopped: tuple[tuple[str, int], ...]
    sweep_at_ms: int


class Queues:
    """All queues. Knows requests from `add` or `restore` until they are withdrawn or their last member has ended."""

    def __init__(self, queueing: Queueing = NO_QUEUEING) -> None:
        self._now_ms = 0
        self._queueing = queueing
        self._fairness = Fairness(queueing.fair_share.half_life_s)
        self._apart: frozenset[str] | None = None
        self._grants = Grants()
        self._backlog = Backlog(self._level)
        self._stopped: dict[str, int] = {}  # how often a request was stopped
        self._sweep_at_ms = 0
        self._yielding = Yielding(self._grants, self._fairness.spaces)
        self._saving = Saving()
        self._build()

    # Configuration

    def configure(self, queueing: Queueing, now_s: float) -> None:
        """Take on a configuration that was checked: who waits and who was admitted stays, usage is counted anew."""
        self._move(now_s)
        if queueing.fair_share != self._queueing.fair_share:
            self._fairness.set_half_life(queueing.fair_share.half_life_s, self._now_ms)
        self._queueing = queueing
        self._build()

    def set_total(self, total: Amount) -> None:
        """What all nodes that take work have: shares are parts of it."""
        if self._fairness.set_total(total):
            self._count_all()

    def set_apart(self, workspaces: frozenset[str] | None) -> None:
        """Workspaces that may have room where others have none; None: any may."""
        if workspaces != self._apart:
            self._apart = workspaces
            self._build()

    def _build(self) -> None:
        """Everything that follows from the configuration, from what waits and what was admitted."""
        waiting, grants = tuple(self._backlog.requests()), tuple(self._grants)
        self._ageing_ms = max(1, int(self._queueing.fair_share.ageing_s * 1000))
        self._backlog = Backlog(self._level)
        self._rows = Rows(self._queueing, self._fairness, self._backlog.turns, self._now_ms)
        self._dirty: dict[Row, None] = {}
        savers, self._saving = self._saving.remember(), Saving()
        self._waits = QuotaWaits(self._backlog, self._saving, self._lane_over_limit)
        self._grants = Grants()
        self._yielding = Yielding(self._grants, self._fairness.spaces, self._yielding.asked)
        for grant in grants:
            self._regrant(grant)
        for request in waiting:
            self._queue(request)
        self._save_again(savers)
        self._count_all()

    def _regrant(self, grant: Grant) -> None:
        """What was admitted is charged to what its queue and flavor are now; its workspace's account has it already."""
        request = grant.request
        grant.row = self._rows.row(request.workspace, request.queue, self._now_ms)
        grant.row.admitted += 1
        grant.value = self._rows.priority(request.priority)
        grant.option = _option(grant.row, request.shape, grant.option.flavor)
        for purse, amount in grant.option.demand:
            purse.take(amount * grant.left)
        self._grants.add(grant)

    # What waits

    def add(self, request: Request, now_s: float) -> None:
        """It waits from now on; nothing happens if it is known."""
        self._move(now_s)
        if request.request_id not in self._backlog and request.request_id not in self._grants.by_request:
            self._queue(request)

    def _queue(self, request: Request) -> None:
        row = self._rows.row(request.workspace, request.queue, self._now_ms)
        kind = kind_of(request)
        lane = row.lanes.get(kind)
        if lane is None:
            apart = self._apart is None or request.workspace in self._apart
            lane = self._rows.new_lane(self._backlog, row, kind, apart)
        self._backlog.add(request, lane, self._rows.priority(request.priority), self._now_ms)

    def withdraw(self, request_id: str) -> None:
        """It does not wait any more; nothing happens if it did not."""
        if request_id in self._backlog:
            self._backlog.remove(request_id, self._now_ms)
            self._stopped.pop(request_id, None)
            self._save_no_more(request_id)

    def _level(self, value: int, requested_at_s: float, now_ms: int) -> tuple[int, int]:
        """A priority with ageing: a step more for each full `ageing_s` of waiting, without an end.

        So nobody starves: a request never goes after one that came later than it by `ageing_s` times one more than the
        steps from its priority to the highest.
        """
        step = self._queueing.fair_share.ageing_step
        if not step:
            return value, 0
        requested_ms = int(requested_at_s * 1000)
        steps = max(0, now_ms - requested_ms) // self._ageing_ms
        return value + steps * step, requested_ms + (steps + 1) * self._ageing_ms

    def next(self, now_s: float) -> Request | None:
        """Whose turn it is, until it is admitted, withdrawn or parked; None when nobody can be helped now."""
        self._move(now_s)
        self._waits.wake()
        self._flush()
        self._backlog.age(self._now_ms)
        if self._now_ms >= self._sweep_at_ms:
            self._sweep()
        for saver in self._saving:
            if saver.ready:
                request, line = self._waiting(saver.request_id)
                saver.ready = any(fits(option, line.lane.size) for option in line.lane.options)
                if saver.ready:
                    self._backlog.looked_at += 1
                    return request
        first = self._backlog.first()
        return self._first_of(first) if first is not None else None

    def unseen(self) -> Request | None:
        """The first of a group that waits behind others like it, and that nobody has looked at since it is first."""
        line = self._backlog.unseen()
        return self._first_of(line) if line is not None else None

    def _first_of(self, line: Line) -> Request:
        return self._waiting(line.head)[0]

    def _waiting(self, request_id: str) -> tuple[Request, Line]:
        found = self._backlog.find(request_id)
        if found is None:
            raise ValueError(f"{request_id} does not wait")
        return found

    def alike(self, one: str, other: str) -> bool:
        """Whether two that wait are looked at in place of each other."""
        found = self._backlog.find(one), self._backlog.find(other)
        return found[0] is not None and found[1] is not None and found[0][1].lane.gate is found[1][1].lane.gate

    def park(self, request_id: str, on: Parked, reserved: bool = False) -> None:
        """It and all equal ones are not looked at until something may have changed; unless it does not wait at all.

        `reserved`: there may be room for others of a higher priority, counted with ageing.
        """
        found = self._backlog.find(request_id)
        if found is None:
            return
        request, line = found
        saver = self._saving.of_request(request_id)
        if saver is not None:
            saver.ready = False
            if not any(victim in self._grants.by_request for victim in saver.victims):
                self._save_no_more(request_id)
        if on is Parked.ROOM:
            below = self._level_of(line, request.requested_at_s) if reserved else None
            self._backlog.park_for_room(line.lane, below)
        elif on is Parked.OTHER or not self._waits.park(line.lane, request_id):
            self._backlog.park_line(line)

    def wake_room(self, fits: Callable[[Shape], bool], serves: str = "") -> None:
        """Room was freed: those parked for it whose members' shape may fit now are looked at again.

        `serves`: the one workspace whose work the room takes; "": anybody's.
        """
        self._backlog.wake_room(fits, serves)
        for saver in self._saving:  # its gate is shut by what is saved for it
            found = self._backlog.find(saver.request_id)
            saver.ready = saver.ready or (found is not None and fits(found[0].shape))

    def wake_all(self) -> None:
        """All that are parked are looked at again."""
        self._waits.forget()
        for saver in self._saving:
            saver.ready = True
        self._backlog.wake_all(self._now_ms)

    def renew(self) -> None:
        """As others would be who are told of all that waits and was admitted, and recall what is remembered."""
        self._build()

    # What may be had

    def check(self, request: Request, now_s: float) -> Ways | Reason:
        """The flavors that have quota for it now, in order, or why none has."""
        self._move(now_s)
        row, options, size = self._asked_of(request)
        if row.quota is None or row.quota.config.held:
            return held(row)
        limit = self._over_limit(row.space, request.shape, size)
        if limit is not None:
            return limit
        if not self._saving:
            return _ways(row.quota, options, size, saved=False)
        with self._saving.counted(row.quota.tree, request.request_id) as saved:
            return _ways(row.quota, options, size, saved)

    def _asked_of(self, request: Request) -> tuple[Row, tuple[Option, ...], int]:
        found = self._backlog.find(request.request_id)
        if found is not None:
            lane = found[1].lane
            return lane.row, lane.options, lane.size
        row = self._rows.row(request.workspace, request.queue, self._now_ms)
        return row, row.quota.options(request.shape) if row.quota is not None else (), len(request.members)

    def _over_limit(self, space: Space, shape: Shape, size: int) -> Reason | None:
        """Whether the workspace's limit is in the way."""
        share = self._rows.share(space.name)
        if share is None:
            return None
        account = space.account
        return over_limit(share, (account.members, account.used[0], account.used[2]), shape, size)

    def _lane_over_limit(self, lane: Lane) -> bool:
        return self._over_limit(lane.row.space, lane.kind[0], lane.size) is not None

    def candidates(self, request: Request) -> Ways:
        """All flavors of its quota in order, whether they have quota now or not."""
        return tuple((option.flavor, option.shape) for option in self._asked_of(request)[1])

    # What is had

    def admit(self, request: Request, flavor: str, now_s: float) -> None:
        """It has room: it waits no more and is charged. Raises `ValueError` if it did not wait, or without quota."""
        self._move(now_s)
        lane = self._waiting(request.request_id)[1].lane
        option = next((option for option in lane.options if option.flavor == flavor), None)
        if option is None or not fits(option, lane.size):
            raise ValueError(f"flavor {flavor!r} has no quota for {request.request_id}")
        self._backlog.remove(request.request_id, self._now_ms)
        self._save_no_more(request.request_id)
        self._grant(request, lane.row, option, lane.size)

    def restore(self, request: Request, flavor: str, now_s: float, left: int | None = None) -> None:
        """An earlier leader admitted it; `left` members have not ended. It is charged whatever the limits say."""
        self._move(now_s)
        self.withdraw(request.request_id)
        if request.request_id not in self._grants.by_request:
            row = self._rows.row(request.workspace, request.queue, self._now_ms)
            option = _option(row, request.shape, flavor)
            self._grant(request, row, option, len(request.members) if left is None else left)

    def _grant(self, request: Request, row: Row, option: Option, left: int) -> None:
        grant = Grant(request, row, option, self._rows.priority(request.priority), self._now_ms)
        row.admitted += 1
        self._grants.add(grant)
        grant.charge(left, self._now_ms)
        self._dirty[row] = None

    def lacks_for_members(self, request_id: str, count: int, now_s: float) -> Reason | None:
        """Why so many members that had ended can't be replaced: others use by now what these gave back."""
        self._move(now_s)
        grant = self._grants.by_request.get(request_id)
        if grant is None:
            return None
        row, option = grant.row, grant.option
        limit = self._over_limit(row.space, grant.request.shape, count)
        with self._saving.counted(grant.tree, request_id) as saved:
            if limit is None and row.quota is not None and not fits(option, count):
                return lacking(row.quota, (option,), count, saved)
        return limit

    def readmit_member(self, request_id: str, now_s: float) -> None:
        """A member that had ended is replaced by another one, and charged again."""
        self._move(now_s)
        grant = self._grants.by_request.get(request_id)
        if grant is not None:
            grant.charge(1, self._now_ms)
            self._dirty[grant.row] = None

    def end_member(self, request_id: str, now_s: float) -> bool:
        """One of its members has ended: its part is free. False if nothing of the request was admitted."""
        self._move(now_s)
        grant = self._grants.by_request.get(request_id)
        if grant is None:
            return False
        grant.charge(-1, self._now_ms)
        row = grant.row
        self._dirty[row] = None
        self._waits.free(grant.option.demand, grant.tree)
        self._waits.free_space(row.space)
        if not grant.left:
            row.admitted -= 1
            self._grants.remove(grant)
            self._yielding.asked.pop(request_id, None)
        return True

    def started(self, request_id: str, now_s: float) -> None:
        """Its containers are ready: its slice begins."""
        self._move(now_s)
        grant = self._grants.by_request.get(request_id)
        if grant is not None and not grant.started_ms:
            grant.started_ms = max(1, self._now_ms)

    # Shares

    def _move(self, now_s: float) -> None:
        """Time goes on; where a clock goes back, it stands."""
        now_ms = int(now_s * 1000)
        if now_ms > self._now_ms:
            self._now_ms = now_ms

    def _flush(self) -> None:
        """Shares that changed give queues and workspaces new places."""
        if self._fairness.settle(self._now_ms):
            self._rows.prune()
            self._count_all()
        scales = self._fairness.scales
        for row in self._dirty:
            before = row.account.share, row.space.account.share
            if before != (row.account.count(scales), row.space.account.count(scales)):
                self._backlog.share_changed(row)
        self._dirty.clear()

    def _count_all(self) -> None:
        self._dirty.update(dict.fromkeys(self._rows))

    def remember(self) -> bytes:
        """The past that decisions rest on, for queues that take over."""
        memory = _Memory(
            fairness=self._fairness.remember(self._now_ms),
            started=tuple((grant.request.request_id, grant.since_ms, grant.started_ms) for grant in self._grants),
            asked=tuple(self._yielding.asked.items()),
            savers=self._saving.remember(),
            stopped=tuple(self._stopped.items()),
            sweep_at_ms=self._sweep_at_ms,
        )
        return msgspec.msgpack.encode(memory)

    def recall(self, memory: bytes) -> None:
        """Go on from what others remembered, once what waits and what was admitted is known; empty is nothing."""
        if not memory:
            return
        past = msgspec.msgpack.decode(memory, type=_Memory)
        self._now_ms = max(self._now_ms, past.fairness.now_ms)
        self._fairness.recall(past.fairness)
        for name, since_ms, started_ms in past.started:
            grant = self._grants.by_request.get(name)
            if grant is not None:
                grant.since_ms, grant.started_ms = since_ms, started_ms
        self._grants.reorder(name for name, _, _ in past.started)
        self._yielding.asked.update((name, why) for name, why in past.asked if name in self._grants.by_request)
        self._stopped = dict(past.stopped)
        self._sweep_at_ms = past.sweep_at_ms
        self._save_again(past.savers)
        self._count_all()

    # Quota that is saved

    def _sweep(self) -> None:
        """For the first of each tree that lacks quota and has waited long enough, what is freed is saved."""
        self._sweep_at_ms = self._now_ms + SWEEP_MS
        patience_ms = int(self._queueing.fair_share.patience_s * 1000)
        for line in self._waits.firsts():
            if self._now_ms - int(line.waiting[0][0] * 1000) >= patience_ms:
                self._saving.save(line.lane, line.head, ())

    def _save_again(self, savers: tuple[SaverPast, ...]) -> None:
        for saver in savers:
            found = self._backlog.find(saver.request_id)
            if found is not None:
                self._saving.save(found[1].lane, saver.request_id, saver.victims, saver.flavor)

    def _save_no_more(self, request_id: str) -> None:
        saver = self._saving.of_request(request_id) if self._saving else None
        if saver is not None:
            self._saving.drop(saver)
            self._waits.free(saver.demand, saver.tree)

    # Making room

    def victims(
        self, request: Request, flavor: str, enough: Callable[[tuple[str, ...]], bool], now_s: float
    ) -> tuple[str, ...]:
        """Admitted requests without which it would fit, each of them needed; none where its quota's rules allow none.

        `enough` tells whether without these it has room, too. What they give back is saved for it.
        """
        self._move(now_s)
        found = self._backlog.find(request.request_id)
        quota = found[1].lane.row.quota if found is not None else None
        if found is None or quota is None or not may_preempt(quota.config) or quota.config.held:
            return ()
        line, lane = found[1], found[1].lane
        option = next((option for option in lane.options if option.flavor == flavor), None)
        if option is None or self._lane_over_limit(lane) or self._saving.before(quota.tree, request.request_id):
            return ()
        asking = (line.value, request.requested_at_s, request.request_id)
        victims = Preemption(self._grants, quota, option, lane.size, asking, self._stopped).victims(enough)
        if victims:
            self._stop(victims)
            self._save_no_more(request.request_id)
            self._saving.save(lane, request.request_id, victims, flavor)
        return victims

    def _stop(self, victims: tuple[str, ...]) -> None:
        for victim in victims:
            self._stopped[victim] = self._stopped.pop(victim, 0) + 1
        while len(self._stopped) > STOPPED_MAX:
            del self._stopped[next(iter(self._stopped))]

    def yields(self, now_s: float, would_help: WouldHelp = anybody) -> tuple[str, ...]:
        """Requests of workspaces over their share whose slice is over, while others wait with less."""
        self._move(now_s)
        if not len(self._backlog) or not self._grants.by_request:
            return ()
        waiting = nsmallest(YIELDS_MAX, filter(self._waits_for_others, self._backlog.lines()), key=order_of)
        return self._yielding.ask(waiting, self._fairness.scales, self._now_ms, would_help)

    def _waits_for_others(self, line: Line) -> bool:
        """Whether it would go if somebody else had less."""
        lane = line.lane
        if lane.size > 1 or line.parked not in (Parked.ROOM, Parked.QUOTA) or not lane.options:
            return False
        return lane.row.quota is not None and not lane.row.quota.config.held and not self._lane_over_limit(lane)

    # How it stands

    @property
    def looked_at(self) -> int:
        """How often a request was handed out since the configuration was set; for those who count the cost."""
        return self._backlog.looked_at

    def ahead(self, request_id: str) -> int:
        """How many requests of its queue go before it."""
        found = self._backlog.find(request_id)
        if found is None:
            return 0
        request, line = found
        entry = request.requested_at_s, request_id
        return line.lane.row.ahead(line.value, entry, lambda value, at_s: self._level(value, at_s, self._now_ms)[0])

    def _level_of(self, line: Line, requested_at_s: float) -> int:
        return self._level(line.value, requested_at_s, self._now_ms)[0]

    def standing(self) -> Standings:
        """All queues and quotas as of now, by name."""
        return standings(self._rows, self._grants, self._fairness.scales)


def _ways(quota: QuotaState, options: tuple[Option, ...], size: int, saved: bool) -> Ways | Reason:
    """The flavors that have quota now, or why none has."""
    ways = tuple((option.flavor, option.shape) for option in options if fits(option, size))
    return ways or lacking(quota, options, size, saved)


def _option(row: Row, shape: Shape, flavor: str) -> Option:
    """The flavor that was admitted; of one that is not there any more nothing is counted."""
    options = row.quota.options(shape) if row.quota is not None else ()
    return next((option for option in options if option.flavor == flavor), Option(flavor, shape, (), ""))
