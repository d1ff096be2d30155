"""Which containers give their room back when their slice is over, because others with less of everything wait.

A container yields only if its workspace still has at least as much as the other one would then have: shares come nearer
to each other and never change places, so nothing goes back and forth. Gangs neither yield nor are yielded for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

from ...model.figures import FAIR_SLICE_S
from .fairness import Account, share_of
from .grants import Grant, Grants
from .lanes import Line, Parked

SLICE_MS: Final = int(FAIR_SLICE_S * 1000)
YIELDS_MAX: Final = 64  # that are asked at a time
LOOKED_AT: Final = 256  # of a workspace's containers, the longest running first
Why = tuple[str, str]  # the workspace and the group that wait
NOBODY: Final = MappingProxyType[str, Why]({})

Scales = tuple[int, int, int]
WouldHelp = Callable[[str, str], bool]


def anybody(_: str, __: str) -> bool:
    """Anybody's room is good for anybody."""
    return True


class Yielding:
    """Knows who was asked to yield and has not ended yet."""

    def __init__(self, grants: Grants, accounts: dict[str, Account], asked: Mapping[str, Why] = NOBODY) -> None:
        self._grants = grants
        self._accounts = accounts
        self.asked = dict(asked)  # by request, for whom it was asked

    def ask(
        self, waiting: Iterable[Line], scales: Scales, now_ms: int, would_help: WouldHelp = anybody
    ) -> tuple[str, ...]:
        """Whom to ask now, for these that wait, in their order: never more than they are, nor any one twice.

        `would_help(request_id, workspace)` says whether the room of the one is any good to the other.
        """
        round_ = _Round(self._grants, self._accounts, scales, now_ms, self.asked, would_help)
        on_the_way: dict[str, int] = {}
        for _, group in self.asked.values():
            on_the_way[group] = on_the_way.get(group, 0) + 1
        found: list[str] = []
        for line in waiting:
            for _ in range(line.count - on_the_way.pop(line.group, 0)):
                grant = round_.one(line) if len(found) < YIELDS_MAX else None
                if grant is None:
                    break
                found.append(grant.request.request_id)
        return tuple(found)


class _Round:
    """What workspaces would use after all that was asked so far."""

    def __init__(
        self,
        grants: Grants,
        accounts: dict[str, Account],
        scales: Scales,
        now_ms: int,
        asked: dict[str, Why],
        would_help: WouldHelp,
    ) -> None:
        self._would_help = would_help
        self._grants = grants
        self._accounts = accounts
        self._scales = scales
        self._now_ms = now_ms
        self._asked = asked
        self._used: dict[str, Sequence[int]] = {name: account.used for name, account in accounts.items()}
        for name, (workspace, _) in asked.items():
            self._take_from(grants.by_request[name])
            self._used[workspace] = _moved(self._used.get(workspace, (0, 0, 0)), grants.by_request[name].amounts, 1)

    def one(self, line: Line) -> Grant | None:
        """One of the workspace with the largest share that may yield for the first of these."""
        name = line.lane.row.space.name
        after = _moved(self._used[name], _wanted(line), 1)
        bar = self._share(name, after)
        shares = ((self._share(other, used), other) for other, used in self._used.items() if other != name)
        for _, other in sorted((-share, other) for share, other in shares if share > bar):
            for grant in islice(self._grants.of_space(other), LOOKED_AT):
                if self._may(grant, line) and self._share(other, _moved(self._used[other], grant.amounts, -1)) >= bar:
                    self._asked[grant.request.request_id] = (name, line.group)
                    self._take_from(grant)
                    self._used[name] = after
                    return grant
        return None

    def _share(self, name: str, used: Sequence[int]) -> int:
        return share_of(used, self._accounts[name].weight, self._scales)

    def _take_from(self, grant: Grant) -> None:
        name = grant.request.workspace
        self._used[name] = _moved(self._used[name], grant.amounts, -grant.left)

    def _may(self, grant: Grant, line: Line) -> bool:
        return (
            bool(grant.started_ms)
            and self._now_ms - grant.started_ms >= SLICE_MS
            and not grant.request.gang
            and grant.request.request_id not in self._asked
            and _helps(grant, line)
            and (line.parked is Parked.QUOTA or self._would_help(grant.request.request_id, line.lane.row.space.name))
        )


def _helps(grant: Grant, line: Line) -> bool:
    """Whether what it has is of the kind and amount that is waited for, as far as shapes and quotas show."""
    has, wants = grant.option.shape, line.lane.kind[0]
    if line.parked is Parked.QUOTA and grant.tree != line.lane.gate.tree:
        return False
    types = not has.gpu_types or not wants.gpu_types or any(each in has.gpu_types for each in wants.gpu_types)
    return (
        all(own >= wanted for own, wanted in zip(grant.amounts, _wanted(line)))
        and (not wants.gpu_count or types)
        and (not wants.pool or not has.pool or has.pool == wants.pool)
    )


def _wanted(line: Line) -> tuple[int, int, int]:
    shape = line.lane.kind[0]
    return shape.cpu_milli, shape.memory_mib, shape.gpu_total_milli


def _moved(used: Sequence[int], amounts: Sequence[int], times: int) -> list[int]:
    return [have + amount * times for have, amount in zip(used, amounts)]
