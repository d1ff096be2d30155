"""The objects of a kind as they are now: listed once, watched from then on, and listed again only when it must be."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import msgspec
import structlog
import trio

from ..errors import KubeRefused, KubeUnavailable, VersionGone
from ..model.ids import Chance
from ..wire.redial import Redial
from .face import Change, ChangeType, Kind, Kube

T = TypeVar("T", bound=msgspec.Struct)

AGAIN_MIN_S: Final = 0.05
AGAIN_FIRST_MAX_S: Final = 1.0  # a watch that ended is opened again within this: a change is to be told within a second
AGAIN_MAX_S: Final = 30.0
HEALTHY_AFTER_S: Final = 10.0  # one request in as long is no burden
# A watch that brought nothing for so long is dead: an API server says once a minute (60.5 s at most, measured) where it
# is. To open the next one may take as long as `client` waits, so that a view is never older than 90 s without a word.
WATCH_QUIET_S: Final = 75.0
SILENT_WATCHES: Final = 4  # in a row; then something between may swallow what they bring, and we list

_log: Final = structlog.get_logger()


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """All objects there are. What was told before and is not among them is gone. `served_at_s` as in `Listing`."""

    items: tuple[T, ...]
    served_at_s: float = 0.0


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """One object was added, modified or deleted."""

    type: ChangeType
    item: T


class Away(msgspec.Struct, frozen=True):
    """The API server cannot be asked, and the view is as old as this. Told at each failed try.

    `status` is that of its refusal, 0 where there was none.
    """

    age_s: float
    error: str
    status: int = 0


class Back(msgspec.Struct, frozen=True):
    """The view is up to date again, or soon will be: changes follow."""


class MirrorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What it did so far. `age_s` is how long ago the view was known to be whole; 0 while it is watched."""

    lists: int
    watches: int
    changes: int
    bookmarks: int
    failures: int
    silences: int
    version: str
    age_s: float
    error: str


class Mirror(Generic[T]):
    """Tells what there is, and every change, in order. It keeps no objects: whoever is told does.

    `tell` is awaited: a slow one slows the watch down, and nothing is buffered here.
    """

    def __init__(
        self,
        kube: Kube,
        kind: Kind[T],
        tell: Callable[[Listed[T] | Changed[T] | Away | Back], Awaitable[None]],
        chance: Chance,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        quiet_s: float = WATCH_QUIET_S,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._tell = tell
        self._chance = chance
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._quiet_s = quiet_s
        self._redial = Redial(
            first_min_s=AGAIN_MIN_S,
            first_max_s=AGAIN_FIRST_MAX_S,
            max_s=AGAIN_MAX_S,
            reset_after_s=HEALTHY_AFTER_S,
        )
        self._version = ""
        self._error = ""
        self._watched = False
        self._whole_at_s = math.nan
        self._healthy_s = 0.0
        self._lists = self._watches = self._changes = self._bookmarks = self._failures = 0
        self._silences = 0
        self._silent = 0  # watches in a row that brought nothing

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled. Started once everything has been told for the first time."""
        self._whole_at_s = trio.current_time()
        started = False
        while True:
            self._healthy_s = 0.0
            listed = not self._version
            try:
                if listed:
                    await self._list()
                if not started:
                    started = True
                    task_status.started()
                await self._watch()
            except VersionGone:
                self._version = ""
                if not listed:
                    continue  # what we had was too old, which is nobody's fault: list at once
            except (KubeUnavailable, KubeRefused) as error:
                await self._failed(error)
            await trio.sleep(self._redial.wait_s(self._chance, self._healthy_s))

    def statistics(self) -> MirrorStatistics:
        """What it did so far, and how old the view is."""
        return MirrorStatistics(
            lists=self._lists,
            watches=self._watches,
            changes=self._changes,
            bookmarks=self._bookmarks,
            failures=self._failures,
            silences=self._silences,
            version=self._version,
            age_s=self._age_s(),
            error=self._error,
        )

    def _age_s(self) -> float:
        return 0.0 if self._watched else trio.current_time() - self._whole_at_s

    async def _list(self) -> None:
        self._lists += 1
        listing = await self._kube.list(self._kind, self._namespace, labels=self._labels, fields=self._fields)
        self._whole_at_s = trio.current_time()
        await self._tell(Listed(listing.items, listing.served_at_s))
        self._version = listing.version
        await self._came_back()

    async def _watch(self) -> None:
        self._watches += 1
        opened_s = trio.current_time()
        try:
            if await self._follow():
                self._whole_at_s = trio.current_time()
            else:
                self._fell_silent()
        finally:
            self._watched = False
            self._healthy_s = max(self._healthy_s, trio.current_time() - opened_s)

    async def _follow(self) -> bool:
        """Watch until the watch ends, which is True, or falls silent."""
        watch = self._kube.watch(
            self._kind, self._namespace, since=self._version, labels=self._labels, fields=self._fields
        )
        async with watch as changes:
            self._watched = True
            self._whole_at_s = trio.current_time()
            await self._came_back()
            while True:
                with trio.move_on_after(self._quiet_s) as silence:
                    change = await anext(changes, None)
                if silence.cancelled_caught:
                    return False
                if change is None:
                    return True
                await self._take(change)

    async def _take(self, change: Change[T]) -> None:
        self._silent = 0
        if change.item is not None:
            self._changes += 1
            await self._tell(Changed(change.type, change.item))
        else:
            self._bookmarks += 1
        self._version = change.version
        self._whole_at_s = trio.current_time()
        self._healthy_s = math.inf  # a watch that brings something is worth opening again at once

    def _fell_silent(self) -> None:
        """The next watch goes on where this one was, and so asks whether anybody is there. To list comes last."""
        self._silences += 1
        self._silent += 1
        if self._silent >= SILENT_WATCHES:
            self._silent = 0
            self._version = ""

    async def _failed(self, error: KubeUnavailable | KubeRefused) -> None:
        self._failures += 1
        if str(error) != self._error:
            _log.warning("a cluster cannot be followed", kind=self._kind.plural, error=str(error))
        self._error = str(error)
        status = error.status if isinstance(error, KubeRefused) else 0
        await self._tell(Away(self._age_s(), self._error, status))

    async def _came_back(self) -> None:
        if self._error:
            self._error = ""
            await self._tell(Back())
