"""What admitted requests hold: of quota, and of their workspace's and queue's share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...model.resources import amount_of
from .events import Request
from .lanes import Row
from .quotas import Option, in_order


class Grant:
    """What one admitted request holds; a gang's shrinks member by member. `value` is its priority, without ageing."""

    __slots__ = ("amounts", "left", "option", "request", "row", "since_ms", "started_ms", "value")

    def __init__(self, request: Request, row: Row, option: Option, value: int, since_ms: int) -> None:
        self.request = request
        self.row = row
        self.option = option
        self.value = value
        self.amounts = in_order(amount_of(request.shape))
        self.left = 0  # members that have not ended
        self.since_ms = since_ms
        self.started_ms = 0  # 0: not yet

    @property
    def tree(self) -> str:
        """Whose quota it holds; "" is nobody's."""
        return self.row.quota.tree if self.row.quota is not None else ""

    @property
    def newest_first(self) -> tuple[int, float, str]:
        """Those to be stopped first come first when sorted in reverse: of low priority, then asked for late."""
        return -self.value, self.request.requested_at_s, self.request.request_id

    def charge(self, members: int, now_ms: int) -> None:
        """So many members more hold their part; fewer where it is below zero."""
        self.left += members
        for purse, amount in self.option.demand:
            if members > 0:
                purse.take(amount * members)
            else:
                purse.give(amount * -members)
        self.row.account.charge(self.amounts, members, now_ms)
        self.row.space.account.charge(self.amounts, members, now_ms)


class Grants:
    """All that was admitted, by request, by tree of quotas, and by workspace."""

    def __init__(self) -> None:
        self.by_request: dict[str, Grant] = {}
        self._by_tree: dict[str, dict[str, Grant]] = {}
        self._by_space: dict[str, dict[str, Grant]] = {}
        self._values: dict[tuple[str, int], int] = {}  # how many of a tree have a priority

    def __iter__(self) -> Iterator[Grant]:
        return iter(self.by_request.values())

    def add(self, grant: Grant) -> None:
        """One more was admitted."""
        name = grant.request.request_id
        self.by_request[name] = grant
        self._by_tree.setdefault(grant.tree, {})[name] = grant
        self._by_space.setdefault(grant.request.workspace, {})[name] = grant
        counted = (grant.tree, grant.value)
        self._values[counted] = self._values.get(counted, 0) + 1

    def remove(self, grant: Grant) -> None:
        """One has ended."""
        name = grant.request.request_id
        del self.by_request[name]
        for index, key in ((self._by_tree, grant.tree), (self._by_space, grant.request.workspace)):
            del index[key][name]
            if not index[key]:
                del index[key]
        counted = (grant.tree, grant.value)
        self._values[counted] -= 1
        if not self._values[counted]:
            del self._values[counted]

    def reorder(self, names: Iterable[str]) -> None:
        """As they were admitted: these, as far as they are there, then the others."""
        order = dict.fromkeys((*names, *self.by_request))
        grants = [self.by_request[name] for name in order if name in self.by_request]
        self.by_request, self._by_tree, self._by_space, self._values = {}, {}, {}, {}
        for grant in grants:
            self.add(grant)

    def of_tree(self, tree: str) -> Iterator[Grant]:
        """Those that hold quota of a tree, as they were admitted."""
        return iter(self._by_tree.get(tree, {}).values())

    def of_space(self, workspace: str) -> Iterator[Grant]:
        """Those of a workspace, as they were admitted."""
        return iter(self._by_space.get(workspace, {}).values())

    def least_value(self, tree: str) -> int | None:
        """The lowest priority among those that hold quota of a tree."""
        return min((value for of_tree, value in self._values if of_tree == tree), default=None)
