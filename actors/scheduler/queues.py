"""Who goes first and who may have how much: the one face of backlog, quotas and fair shares.

Whoever places asks for the next request, checks where it has quota, and admits or parks it. Quota is charged when a
request is admitted and refunded member by member as they end; nothing else changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...model.queues import DEFAULT, Queueing, Quota, Share
from ...model.reasons import HoldKind, Lack, Reason
from ...model.resources import CARD_MILLI, Amount, Shape, amount_of
from ...wire.operating import QueueStanding, QuotaStanding
from .backlog import Backlog, Bounds, GateKey, Lane, Line, Parked, Row, Space, kind_of
from .events import Request
from .fairness import SHARE_ONE, Account, Clock, Past, scales_of
from .quotas import Option, Purse, Quotas, QuotaState, could_fit, fits, in_order, lacks, short_at, walk

Ways = tuple[
    tuple[str, Shape], ...
]  # flavors that have quota, in order, each with the shape as it must be placed there

NO_QUEUEING: Final = Queueing()
NEAR: Final = 64  # totals that differ by less than a part of this are near


class WaitingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal requests that wait, in place of all of them their first; `parked` says why none of them is looked at."""

    first: Request
    count: int
    parked: Parked | None


class _Memory(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    settled_ms: int
    spaces: tuple[tuple[str, Past], ...]
    rows: tuple[tuple[tuple[str, str], Past], ...]


class Grant:
    """What an admitted request holds."""

    __slots__ = ("flavor", "left", "number", "option", "request", "row", "since_ms", "started_ms")

    def __init__(self, request: Request, row: Row, flavor: str, option: Option, number: int, since_ms: int) -> None:
        self.request = request
        self.row = row
        self.flavor = flavor
        self.option = option
        self.number = number  # later ones have higher numbers
        self.left = 0  # members that have not ended
        self.since_ms = since_ms
        self.started_ms = 0  # 0: not yet


class Queues:
    """All queues. Knows requests from `add` or `restore` until they are withdrawn or their last member has ended."""

    def __init__(self, queueing: Queueing = NO_QUEUEING) -> None:
        self._now_ms = 0
        self._queueing = queueing
        self._accounts: dict[str, Account] = {}
        self._row_accounts: dict[tuple[str, str], Account] = {}
        self._grants: dict[str, Grant] = {}
        self._numbered = 0
        self._total = Amount()
        self._counted = in_order(self._total)
        self._scales = scales_of(self._total)
        self._apart: frozenset[str] | None = None
        self._clock = Clock(self._queueing.fair_share.half_life_s, 0)
        self._build(())

    # Configuration

    def configure(self, queueing: Queueing, now_s: float) -> None:
        """Take on a configuration that was checked: who waits and who was admitted stays, usage is counted anew."""
        self._move(now_s)
        self._queueing = queueing
        self._clock = Clock(queueing.fair_share.half_life_s, self._now_ms)
        self._build(tuple(self._backlog.requests()))

    def set_total(self, total: Amount) -> None:
        """What all nodes that take work have: shares are parts of it."""
        self._total = total
        if not _near(in_order(total), self._counted):
            self._scale()

    def set_apart(self, workspaces: frozenset[str] | None) -> None:
        """Workspaces that may have room where others have none; None: any may."""
        if workspaces != self._apart:
            self._apart = workspaces
            self._build(tuple(self._backlog.requests()))

    def _build(self, waiting: Iterable[Request]) -> None:
        queueing = self._queueing
        self._quotas = Quotas(queueing)
        self._quotas.states.setdefault(DEFAULT, QuotaState(Quota(name=DEFAULT), f"quota {DEFAULT}"))
        self._priorities = {DEFAULT: 0, **{found.name: found.value for found in queueing.priorities}}
        self._shares = {share.workspace: share for share in queueing.shares}
        self._configured = {(queue.workspace, queue.name): queue for queue in queueing.queues}
        self._ageing_ms = max(1, int(queueing.fair_share.ageing_s * 1000))
        self._spaces: dict[str, Space] = {}
        self._limited: dict[Space, dict[Lane, None]] = {}
        self._short: dict[Purse, dict[Lane, None]] = {}
        self._freed: dict[Purse, None] = {}
        self._freed_trees: dict[str, None] = {}
        self._freed_spaces: dict[Space, None] = {}
        self._dirty: dict[Row, None] = {}
        self._backlog = Backlog(self._level)
        for workspace, name in self._configured:
            self._row(workspace, name)
        for grant in self._grants.values():
            self._regrant(grant)
        self._count_all()
        for request in waiting:
            self._queue(request)

    def _regrant(self, grant: Grant) -> None:
        """What was admitted is charged to what its queue and flavor are now."""
        request = grant.request
        grant.row = self._row(request.workspace, request.queue)
        grant.row.admitted += 1
        options = grant.row.quota.options(request.shape) if grant.row.quota is not None else ()
        grant.option = next(
            (option for option in options if option.flavor == grant.flavor), Option("", request.shape, (), "")
        )
        for purse, amount in grant.option.demand:
            purse.take(amount * grant.left)

    def _row(self, workspace: str, name: str) -> Row:
        space = self._spaces.get(workspace)
        if space is None:
            account = self._accounts.setdefault(workspace, Account())
            account.weight = self._share(workspace).weight
            account.start(self._now_ms)
            space = self._spaces[workspace] = Space(workspace, account, self._backlog.turns)
        row = space.rows.get(name)
        if row is None:
            row = space.rows[name] = self._new_row(space, name)
        return row

    def _new_row(self, space: Space, name: str) -> Row:
        queue = self._configured.get((space.name, name))
        quota_name = queue.quota if queue is not None else DEFAULT
        quota = self._quotas.states.get(quota_name) if queue is not None or name == DEFAULT else None
        account = self._row_accounts.setdefault((space.name, name), Account())
        account.weight = queue.weight if queue is not None else 1
        account.start(self._now_ms)
        return Row(name, space, quota, account, self._backlog.turns)

    def _share(self, workspace: str) -> Share:
        return self._shares.get(workspace) or Share(workspace=workspace)

    # What waits

    def add(self, request: Request, now_s: float) -> None:
        """It waits from now on; nothing happens if it is known."""
        self._move(now_s)
        if request.request_id not in self._backlog and request.request_id not in self._grants:
            self._queue(request)

    def _queue(self, request: Request) -> None:
        row = self._row(request.workspace, request.queue)
        lane = row.lanes.get(kind_of(request)) or self._new_lane(row, request)
        self._backlog.add(request, lane, self._priorities.get(request.priority, 0), self._now_ms)

    def _new_lane(self, row: Row, request: Request) -> Lane:
        options = row.quota.options(request.shape) if row.quota is not None else ()
        tree = row.quota.tree if row.quota is not None else ""
        bounds = _bounds(options, len(request.members)) if row.quota is not None and not row.quota.lends else ()
        claims = tuple(
            (option.flavor, tuple((purse.resource, amount) for purse, amount in option.demand)) for option in options
        )
        apart = self._apart is None or row.space.name in self._apart
        key: GateKey = (tree, claims, kind_of(request), apart)
        gate = self._backlog.gate(key, tree, bounds)
        lane = row.lanes[kind_of(request)] = Lane(row, kind_of(request), options, gate, self._backlog.turns)
        return lane

    def withdraw(self, request_id: str) -> None:
        """It does not wait any more; nothing happens if it did not."""
        if request_id in self._backlog:
            self._backlog.remove(request_id, self._now_ms)

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
        self._wake_freed()
        self._flush()
        self._backlog.age(self._now_ms)
        line = self._backlog.first()
        return self._request(line) if line is not None else None

    def unseen(self) -> Request | None:
        """The first of a group that waits behind others like it, and that nobody has looked at since the group came."""
        line = self._backlog.unseen()
        return self._request(line) if line is not None else None

    def _request(self, line: Line) -> Request:
        found = self._backlog.find(line.head)
        assert found is not None
        return found[0]

    def park(self, request_id: str, on: Parked) -> None:
        """It and all equal ones are not looked at until something may have changed; unless it does not wait at all."""
        found = self._backlog.find(request_id)
        if found is None:
            return
        line = found[1]
        if on is Parked.ROOM:
            self._backlog.park_for_room(line.lane)
        elif on is Parked.OTHER or not self._park_on_quota(line.lane):
            self._backlog.park_line(line)

    def _park_on_quota(self, lane: Lane) -> bool:
        """Wait for the limit that is in the way; False if none is."""
        if lane.row.quota is None or lane.row.quota.config.held:
            self._backlog.block(lane)  # until the configuration changes
            return True
        if self._over_limit(lane.row.space, lane.kind[0], lane.size) is not None:
            self._limited.setdefault(lane.row.space, {})[lane] = None
        elif lane.gate.full:
            self._backlog.shut(lane.gate, Parked.QUOTA)
            return True
        else:
            short = [purse for option in lane.options for purse in short_at(option, lane.size)]
            if not short and lane.options:
                return False
            for purse in short:
                self._short.setdefault(purse, {})[lane] = None
        self._backlog.block(lane)
        return True

    def wake_room(self, fits: Callable[[Shape], bool], serves: str = "") -> None:
        """Room was freed: those parked for it whose members' shape may fit now are looked at again.

        `serves`: the one workspace whose work the room takes; "": anybody's.
        """
        self._backlog.wake_room(fits, serves)

    def wake_all(self) -> None:
        """All that are parked are looked at again."""
        self._limited.clear()
        self._short.clear()
        self._backlog.wake_all(self._now_ms)

    def _wake_freed(self) -> None:
        for purse in self._freed:
            lanes = self._short.get(purse)
            if lanes:
                self._unblock(lanes, lambda lane: any(fits(option, lane.size) for option in lane.options))
        self._freed.clear()
        for space in self._freed_spaces:
            lanes = self._limited.get(space)
            if lanes:
                self._unblock(lanes, lambda lane: self._over_limit(lane.row.space, lane.kind[0], lane.size) is None)
        self._freed_spaces.clear()
        for tree in self._freed_trees:
            self._backlog.wake_tree(tree)
        self._freed_trees.clear()

    def _unblock(self, lanes: dict[Lane, None], free: Callable[[Lane], bool]) -> None:
        for lane in [lane for lane in lanes if free(lane)]:
            del lanes[lane]
            self._backlog.unblock(lane)

    # What may be had

    def check(self, request: Request, now_s: float) -> Ways | Reason:
        """The flavors that have quota for it now, in order, or why none has."""
        self._move(now_s)
        found = self._backlog.find(request.request_id)
        if found is not None:
            lane = found[1].lane
            row, options = lane.row, lane.options
        else:
            row = self._row(request.workspace, request.queue)
            options = row.quota.options(request.shape) if row.quota is not None else ()
        size = len(request.members)
        if row.quota is None or row.quota.config.held:
            return _held(row)
        limit = self._over_limit(row.space, request.shape, size)
        if limit is not None:
            return limit
        ways = tuple((option.flavor, option.shape) for option in options if fits(option, size))
        return ways or self._lacking(row.quota, options, request)

    @staticmethod
    def _lacking(quota: QuotaState, options: tuple[Option, ...], request: Request) -> Reason:
        if not options:
            detail = f"No flavor of quota {quota.name} has what it asks for."
            return Reason(kind=HoldKind.QUOTA, quota=quota.name, detail=detail)
        option = options[0]
        return Reason(
            kind=HoldKind.QUOTA, quota=quota.name, flavor=option.flavor, lacks=lacks(option, len(request.members))
        )

    def _over_limit(self, space: Space, shape: Shape, size: int) -> Reason | None:
        """Whether the workspace's limit is in the way."""
        share = self._shares.get(space.name)
        if share is None:
            return None
        limits = _limits(share)
        if limits == (None, None, None):
            return None
        used = (space.account.members, space.account.used[0], space.account.used[2])
        return _concurrency(limits, used, _wants(shape, size))

    def candidates(self, request: Request) -> Ways:
        """All flavors of its quota in order, whether they have quota now or not."""
        row = self._row(request.workspace, request.queue)
        options = row.quota.options(request.shape) if row.quota is not None else ()
        return tuple((option.flavor, option.shape) for option in options)

    def never(self, request: Request) -> Reason | None:
        """Why it could not run even if nothing else did; None where it could."""
        row = self._row(request.workspace, request.queue)
        size = len(request.members)
        if row.quota is None:
            return _held(row)
        limit = _concurrency(_limits(self._share(request.workspace)), (0, 0, 0), _wants(request.shape, size))
        if limit is not None:
            return limit
        options = row.quota.options(request.shape)
        if any(could_fit(option, size) for option in options):
            return None
        if not options:
            return self._lacking(row.quota, options, request)
        short = [(purse, amount * size - purse.most()) for purse, amount in options[0].demand]
        lacking = tuple(Lack(_resource(options[0], purse), more) for purse, more in short if more > 0)
        return Reason(kind=HoldKind.QUOTA, quota=row.quota.name, flavor=options[0].flavor, lacks=lacking)

    # What is had

    def admit(self, request: Request, flavor: str, now_s: float) -> None:
        """It has room: it waits no more and is charged. Raises `ValueError` if it did not wait, or without quota."""
        self._move(now_s)
        found = self._backlog.find(request.request_id)
        if found is None:
            raise ValueError(f"{request.request_id} does not wait")
        lane = found[1].lane
        option = next((option for option in lane.options if option.flavor == flavor), None)
        if option is None or not fits(option, lane.size):
            raise ValueError(f"flavor {flavor!r} has no quota for {request.request_id}")
        self._backlog.remove(request.request_id, self._now_ms)
        self._grant(request, lane.row, flavor, option, lane.size)

    def restore(self, request: Request, flavor: str, now_s: float, left: int | None = None) -> None:
        """An earlier leader admitted it; `left` members have not ended. It is charged whatever the limits say."""
        self._move(now_s)
        self.withdraw(request.request_id)
        if request.request_id in self._grants:
            return
        row = self._row(request.workspace, request.queue)
        options = row.quota.options(request.shape) if row.quota is not None else ()
        option = next((option for option in options if option.flavor == flavor), Option("", request.shape, (), ""))
        self._grant(request, row, flavor, option, len(request.members) if left is None else left)

    def _grant(self, request: Request, row: Row, flavor: str, option: Option, left: int) -> None:
        self._numbered += 1
        grant = Grant(request, row, flavor, option, self._numbered, self._now_ms)
        self._grants[request.request_id] = grant
        row.admitted += 1
        self._charge(grant, left)

    def _charge(self, grant: Grant, members: int) -> None:
        grant.left += members
        for purse, amount in grant.option.demand:
            purse.take(amount * members)
        self._account(grant, members)

    def _account(self, grant: Grant, members: int) -> None:
        amounts = in_order(amount_of(grant.request.shape))
        row = grant.row
        row.account.charge(amounts, members, self._now_ms)
        row.space.account.charge(amounts, members, self._now_ms)
        self._dirty[row] = None

    def end_member(self, request_id: str, now_s: float) -> bool:
        """One of its members has ended: its part is free. False if nothing of the request was admitted."""
        self._move(now_s)
        grant = self._grants.get(request_id)
        if grant is None:
            return False
        grant.left -= 1
        for purse, amount in grant.option.demand:
            purse.give(amount)
            self._free(purse)
        self._account(grant, -1)
        row = grant.row
        if row.quota is not None and grant.option.demand:
            self._freed_trees[row.quota.tree] = None
        if row.space in self._limited:
            self._freed_spaces[row.space] = None
        if not grant.left:
            row.admitted -= 1
            del self._grants[request_id]
        return True

    def readmit_member(self, request_id: str, now_s: float) -> None:
        """A member that had ended is replaced by another one, and charged again, whatever the limits say."""
        self._move(now_s)
        grant = self._grants.get(request_id)
        if grant is not None:
            self._charge(grant, 1)

    def _free(self, purse: Purse) -> None:
        if self._short:
            for above in walk(purse):
                if above in self._short:
                    self._freed[above] = None

    def started(self, request_id: str, now_s: float) -> None:
        """Its containers are ready: its slice begins."""
        self._move(now_s)
        grant = self._grants.get(request_id)
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
        if self._clock.due(self._now_ms):
            self._settle()
        for row in self._dirty:
            before = row.account.share, row.space.account.share
            row.account.count(self._scales)
            row.space.account.count(self._scales)
            if before != (row.account.share, row.space.account.share):
                self._backlog.share_changed(row)
        self._dirty.clear()

    def _scale(self) -> None:
        self._counted = in_order(self._total)
        self._scales = scales_of(self._total)
        self._count_all()

    def _settle(self) -> None:
        elapsed_ms, factor = self._clock.step(self._now_ms)
        for accounts in (self._accounts, self._row_accounts):
            for account in accounts.values():
                if not account.idle:
                    account.settle(self._now_ms, elapsed_ms, factor)
        self._scale()

    def _count_all(self) -> None:
        for space in self._spaces.values():
            for row in space.rows.values():
                self._dirty[row] = None

    def remember(self) -> bytes:
        """The past that shares rest on, for queues that take over."""
        memory = _Memory(
            self._now_ms,
            self._clock.settled_ms,
            tuple((name, account.remember(self._now_ms)) for name, account in self._accounts.items()),
            tuple((name, account.remember(self._now_ms)) for name, account in self._row_accounts.items()),
        )
        return msgspec.msgpack.encode(memory)

    def recall(self, memory: bytes) -> None:
        """Go on from what others remembered; empty is nothing."""
        if not memory:
            return
        past = msgspec.msgpack.decode(memory, type=_Memory)
        self._now_ms = max(self._now_ms, past.now_ms)
        self._clock.set(past.settled_ms)
        for name, of_space in past.spaces:
            self._accounts.setdefault(name, Account()).recall(of_space, past.now_ms)
        for name_of_row, of_row in past.rows:
            self._row_accounts.setdefault(name_of_row, Account()).recall(of_row, past.now_ms)
        self._count_all()

    # How it stands

    def ahead(self, request_id: str) -> int:
        """How many requests of its queue go before it."""
        found = self._backlog.find(request_id)
        if found is None:
            return 0
        request, line = found
        own = (-self._level_of(line, request.requested_at_s), request.requested_at_s, request_id)
        return sum(
            (-self._level_of(other, at_s), at_s, name) < own
            for lane in line.lane.row.lanes.values()
            for other in lane.by_name.values()
            for at_s, name in other.waiting
            if name in self._backlog
        )

    def _level_of(self, line: Line, requested_at_s: float) -> int:
        return self._level(line.value, requested_at_s, self._now_ms)[0]

    def waiting_groups(self) -> tuple[WaitingGroup, ...]:
        """Everything that waits, in order."""
        self._flush()
        return tuple(
            WaitingGroup(first=self._request(line), count=line.count, parked=line.parked)
            for line in self._backlog.ordered_lines()
        )

    def standing(self) -> tuple[tuple[QueueStanding, ...], tuple[QuotaStanding, ...]]:
        """All queues and quotas as of now, by name."""
        self._flush()
        rows = [row for space in self._spaces.values() for row in space.rows.values()]
        rows.sort(key=lambda row: (row.space.name, row.name))
        return tuple(self._queue_standing(row) for row in rows), tuple(self._quota_standings(rows))

    def _queue_standing(self, row: Row) -> QueueStanding:
        return QueueStanding(
            name=row.name,
            workspace=row.space.name,
            quota=row.quota.name if row.quota is not None else "",
            pending=row.pending,
            admitted=row.admitted,
            used=Amount(*row.account.used),
            share_milli=row.space.account.now(self._scales) * 1000 // SHARE_ONE,
        )

    def _quota_standings(self, rows: list[Row]) -> list[QuotaStanding]:
        admitted: dict[tuple[str, str], int] = {}
        used: dict[tuple[str, str], Amount] = {}
        for grant in self._grants.values():
            if grant.row.quota is not None:
                key = (grant.row.quota.name, grant.flavor)
                admitted[key] = admitted.get(key, 0) + 1
                used[key] = used.get(key, Amount()).plus(amount_of(grant.request.shape, grant.left))
        pending: dict[str, int] = {}
        for row in rows:
            if row.quota is not None:
                pending[row.quota.name] = pending.get(row.quota.name, 0) + row.pending
        standings = []
        for state in sorted(self._quotas.states.values(), key=lambda state: state.name):
            flavors = [(flavor.name, purses) for flavor, purses in state.flavors] or [("", (None, None, None))]
            for flavor, purses in flavors:
                standings.append(
                    QuotaStanding(
                        name=state.name,
                        cohort=state.config.cohort,
                        flavor=flavor,
                        pending=pending.get(state.name, 0),
                        admitted=admitted.get((state.name, flavor), 0),
                        nominal=Amount(*(purse.nominal if purse else 0 for purse in purses)),
                        used=used.get((state.name, flavor), Amount()),
                        borrowed=Amount(*(purse.borrowed if purse else 0 for purse in purses)),
                    )
                )
        return standings

    # Making room

    def victims(
        self, request: Request, flavor: str, enough: Callable[[tuple[str, ...]], bool], now_s: float
    ) -> tuple[str, ...]:
        """The fewest admitted requests without which it would fit; none where the quota's rules allow none."""
        self._move(now_s)
        return ()

    def yields(self, now_s: float) -> tuple[str, ...]:
        """Requests of workspaces over their share whose slice is over, while others wait with less."""
        self._move(now_s)
        return ()


def _bounds(options: tuple[Option, ...], size: int) -> Bounds:
    """What each option asks of the outermost purses; nothing if one of them asks for nothing."""
    if not all(option.demand for option in options):
        return ()
    return tuple(tuple((purse.root, amount * size) for purse, amount in option.demand) for option in options)


def _near(total: tuple[int, ...], counted: tuple[int, ...]) -> bool:
    """Whether shares of one are nearly those of the other; the rest is made up for when means move on."""
    return all(abs(now - then) * NEAR <= then for now, then in zip(total, counted))


def _held(row: Row) -> Reason:
    if row.quota is None:
        return Reason(kind=HoldKind.QUEUE_HELD, detail=f"Workspace {row.space.name} has no queue {row.name}.")
    return Reason(kind=HoldKind.QUEUE_HELD, quota=row.quota.name)


Limits = tuple[int | None, int | None, int | None]  # containers, thousandths of CPUs, thousandths of cards


def _limits(share: Share) -> Limits:
    return share.max_containers, share.max_cpu_milli, None if share.max_gpus is None else share.max_gpus * CARD_MILLI


def _wants(shape: Shape, size: int) -> tuple[int, int, int]:
    return size, shape.cpu_milli * size, shape.gpu_total_milli * size


def _concurrency(limits: Limits, used: tuple[int, int, int], wants: tuple[int, int, int]) -> Reason | None:
    """The first limit that is in the way."""
    for resource, limit, taken, more in zip(("containers", "cpu", "gpu"), limits, used, wants):
        if limit is not None and more and taken + more > limit:
            lack = Lack(resource, taken + more - limit)
            return Reason(kind=HoldKind.CONCURRENCY, lacks=(lack,), wanted=limit)
    return None


def _resource(option: Option, purse: Purse) -> str:
    return option.gpu_name if purse.resource == "gpu" else purse.resource
