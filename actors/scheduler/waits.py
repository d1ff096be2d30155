"""Lanes that wait for quota or for their workspace's limit, each where it will hear of what is freed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .backlog import Backlog
from .lanes import Lane, Line, Parked, Space, Where, order_of
from .quotas import Demand, Purse, fits, short_at, walk
from .saving import Saving

Key = TypeVar("Key", Purse, Space)


class QuotaWaits:
    """Who waits at which purse, at which workspace, or behind a gate that is shut for a whole tree."""

    def __init__(self, backlog: Backlog, saving: Saving, over_limit: Callable[[Lane], bool]) -> None:
        self._backlog = backlog
        self._saving = saving
        self._over_limit = over_limit
        self._limited: dict[Space, dict[Lane, None]] = {}
        self._short: dict[Purse, dict[Lane, None]] = {}
        self._freed_trees: dict[str, None] = {}
        self._freed: dict[Purse, None] = {}
        self._freed_spaces: dict[Space, None] = {}

    def park(self, lane: Lane, request_id: str) -> bool:
        """Wait for the limit that is in the way; False if none is."""
        if lane.row.quota is None or lane.row.quota.config.held or not lane.options:
            self._backlog.block(lane)  # until the configuration changes
        elif self._over_limit(lane):
            self._limited.setdefault(lane.row.space, {})[lane] = None
            self._backlog.block(lane)
        elif lane.gate.full:
            self._backlog.shut(lane.gate, Parked.QUOTA)
        else:
            with self._saving.counted(lane.gate.tree, request_id):
                short = [purse for option in lane.options for purse in short_at(option, lane.size)]
            for purse in short:
                self._short.setdefault(purse, {})[lane] = None
            if short:
                self._backlog.block(lane)
            return bool(short)
        return True

    def firsts(self) -> list[Line]:
        """Of each tree, the first line that lacks quota of it."""
        found: dict[str, Line] = {}
        blocked = (lane for lanes in self._short.values() for lane in lanes if lane.where is Where.BLOCKED)
        for lane in (*self._backlog.short_of_quota(), *blocked):
            line = lane.lines.first()
            best = found.get(lane.gate.tree)
            if line is not None and (best is None or order_of(line) < order_of(best)):
                found[lane.gate.tree] = line
        return list(found.values())

    def free(self, demand: Demand, tree: str) -> None:
        """Something of these purses was given back."""
        if demand:
            self._freed_trees[tree] = None
        if self._short:
            for purse, _ in demand:
                self._freed.update((above, None) for above in walk(purse) if above in self._short)

    def free_space(self, space: Space) -> None:
        """A workspace runs less."""
        if space in self._limited:
            self._freed_spaces[space] = None

    def forget(self) -> None:
        """All were woken."""
        self._limited.clear()
        self._short.clear()

    def wake(self) -> None:
        """Whoever waited for what was freed, and may have it now, is looked at again."""
        for purse in self._freed:
            self._unblock(self._short, purse, _has_quota)
        self._freed.clear()
        for space in self._freed_spaces:
            self._unblock(self._limited, space, lambda lane: not self._over_limit(lane))
        self._freed_spaces.clear()
        for tree in self._freed_trees:
            saver = self._saving.of_tree(tree)
            if saver is not None:
                saver.ready = True
            self._backlog.wake_tree(tree)
        self._freed_trees.clear()

    def _unblock(self, lists: dict[Key, dict[Lane, None]], key: Key, free: Callable[[Lane], bool]) -> None:
        """Those that are free now, and those that are gone or were woken otherwise, leave the list."""
        lanes = lists.get(key, {})
        for lane in [lane for lane in lanes if lane.where is not Where.BLOCKED or free(lane)]:
            del lanes[lane]
            self._backlog.unblock(lane)
        if not lanes:
            lists.pop(key, None)


def _has_quota(lane: Lane) -> bool:
    return any(fits(option, lane.size) for option in lane.options)
