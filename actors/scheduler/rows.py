"""A configuration of queues at work: workspaces and their queues, each with its quota and its account."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.queues import DEFAULT, Queueing, Quota, Share
from .backlog import Backlog
from .fairness import Fairness
from .lanes import Bounds, GateKey, Kind, Lane, Row, Space
from .ordered import Turns
from .quotas import Option, Quotas, QuotaState


class Rows:
    """All queues that are configured or in use. Who names no queue is in its workspace's default one."""

    def __init__(self, queueing: Queueing, fairness: Fairness, turns: Turns, now_ms: int) -> None:
        self.quotas = Quotas(queueing).states
        self.quotas.setdefault(DEFAULT, QuotaState(Quota(name=DEFAULT), f"quota {DEFAULT}"))
        self.spaces: dict[str, Space] = {}
        self._priorities = {DEFAULT: 0, **{found.name: found.value for found in queueing.priorities}}
        self._shares = {share.workspace: share for share in queueing.shares}
        self._configured = {(queue.workspace, queue.name): queue for queue in queueing.queues}
        self._fairness = fairness
        self._turns = turns
        for workspace, name in self._configured:
            self.row(workspace, name, now_ms)

    def __iter__(self) -> Iterator[Row]:
        return (row for space in self.spaces.values() for row in space.rows.values())

    def share(self, workspace: str) -> Share | None:
        """What a workspace may; None: there is nothing to say of it."""
        return self._shares.get(workspace)

    def priority(self, name: str) -> int:
        """The value of a priority class; of one that is not there any more, that of none."""
        return self._priorities.get(name, self._priorities[DEFAULT])

    def row(self, workspace: str, name: str, now_ms: int) -> Row:
        """A queue; perhaps a new one."""
        space = self.spaces.get(workspace)
        if space is None:
            share = self._shares.get(workspace)
            account = self._fairness.of_space(workspace, share.weight if share is not None else 1, now_ms)
            account.count(self._fairness.scales)
            space = self.spaces[workspace] = Space(workspace, account, self._turns)
        row = space.rows.get(name)
        if row is None:
            row = space.rows[name] = self._new_row(space, name, now_ms)
        return row

    def _new_row(self, space: Space, name: str, now_ms: int) -> Row:
        """A queue that is not configured has no quota to draw on, but for the default one."""
        queue = self._configured.get((space.name, name))
        quota_name = queue.quota if queue is not None else DEFAULT
        quota = self.quotas[quota_name] if queue is not None or name == DEFAULT else None
        account = self._fairness.of_row(space.name, name, queue.weight if queue is not None else 1, now_ms)
        account.count(self._fairness.scales)
        return Row(name, space, quota, account, self._turns)

    def new_lane(self, backlog: Backlog, row: Row, kind: Kind, apart: bool) -> Lane:
        """Where requests of this kind wait in this queue."""
        shape, size, _, _ = kind
        quota = row.quota
        options = quota.options(shape) if quota is not None else ()
        tree = quota.tree if quota is not None else ""
        bounds = _bounds(options, size) if quota is not None and not quota.lends else ()
        claims = tuple(
            (option.flavor, tuple((purse.resource, amount) for purse, amount in option.demand)) for option in options
        )
        key: GateKey = (tree, claims, kind, apart)
        lane = row.lanes[kind] = Lane(row, kind, options, backlog.gate(key, tree, bounds), self._turns)
        return lane

    def prune(self) -> None:
        """Forget queues that nobody configured and nobody uses, and of whose use nothing is left."""
        for space in tuple(self.spaces.values()):
            for row in tuple(space.rows.values()):
                if not (row.lanes or row.admitted or (space.name, row.name) in self._configured) and row.account.idle:
                    del space.rows[row.name]
                    del self._fairness.rows[space.name, row.name]
            if not space.rows and space.account.idle:
                del self.spaces[space.name]
                del self._fairness.spaces[space.name]


def _bounds(options: tuple[Option, ...], size: int) -> Bounds:
    """What each option asks of the outermost purses; nothing if one of them asks for nothing."""
    if not all(option.demand for option in options):
        return ()
    return tuple(tuple((purse.root, amount * size) for purse, amount in option.demand) for option in options)
