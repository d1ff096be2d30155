"""Quota that is saved for one who has waited long, or for whom others are stopping: small ones do not nibble it away.

One request a tree of quotas at a time. Whoever else draws on the tree is looked at as if that request had its quota
already; only it sees what is really free. So nothing is ever used twice, and what it does not need others still get.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from .lanes import Lane
from .quotas import Demand, could_fit


class Saver:
    """For whom quota is saved, how much of each purse, and who stops for it."""

    __slots__ = ("demand", "flavor", "ready", "request_id", "tree", "victims")

    def __init__(self, request_id: str, tree: str, flavor: str, demand: Demand, victims: tuple[str, ...]) -> None:
        self.request_id = request_id
        self.tree = tree
        self.flavor = flavor
        self.demand = demand  # of all members together
        self.victims = victims
        self.ready = True  # something was freed since it was looked at

    def take(self) -> None:
        """As if it had its quota."""
        for purse, amount in self.demand:
            purse.take(amount)

    def give(self) -> None:
        """As it is."""
        for purse, amount in self.demand:
            purse.give(amount)


class SaverPast(msgspec.Struct, frozen=True, array_like=True):
    """What a journal keeps of one."""

    request_id: str
    flavor: str
    victims: tuple[str, ...]


class Saving:
    """All savers."""

    def __init__(self) -> None:
        self._by_tree: dict[str, Saver] = {}
        self._by_request: dict[str, Saver] = {}

    def __iter__(self) -> Iterator[Saver]:
        return iter(self._by_tree.values())

    def __len__(self) -> int:
        return len(self._by_tree)

    def of_tree(self, tree: str) -> Saver | None:
        """For whom quota of this tree is saved."""
        return self._by_tree.get(tree)

    def of_request(self, request_id: str) -> Saver | None:
        """What is saved for a request."""
        return self._by_request.get(request_id)

    def before(self, tree: str, request_id: str) -> Saver | None:
        """Who is to have quota of this tree before this request."""
        saver = self._by_tree.get(tree)
        return saver if saver is not None and saver.request_id != request_id else None

    @contextmanager
    def counted(self, tree: str, request_id: str) -> Iterator[bool]:
        """As if whoever goes before this request had its quota; whether there is anybody."""
        saver = self.before(tree, request_id)
        if saver is not None:
            saver.take()
        yield saver is not None
        if saver is not None:
            saver.give()

    def save(self, lane: Lane, request_id: str, victims: tuple[str, ...], flavor: str | None = None) -> None:
        """Save for a request of this lane from now on, of this flavor or of the first that could ever do.

        Unless somebody else of the tree saves, or nothing of it is counted.
        """
        could = [option for option in lane.options if flavor in (None, option.flavor) and could_fit(option, lane.size)]
        tree = lane.gate.tree
        if could and could[0].demand and tree not in self._by_tree:
            demand = tuple((purse, amount * lane.size) for purse, amount in could[0].demand)
            self._put(Saver(request_id, tree, could[0].flavor, demand, victims))

    def remember(self) -> tuple[SaverPast, ...]:
        """All of them, for others who go on."""
        return tuple(SaverPast(saver.request_id, saver.flavor, saver.victims) for saver in self)

    def _put(self, saver: Saver) -> None:
        self._by_tree[saver.tree] = self._by_request[saver.request_id] = saver
        for purse, amount in saver.demand:
            purse.root.saved += amount

    def drop(self, saver: Saver) -> None:
        """Save no more."""
        del self._by_tree[saver.tree]
        del self._by_request[saver.request_id]
        for purse, amount in saver.demand:
            purse.root.saved -= amount
