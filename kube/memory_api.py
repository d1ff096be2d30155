"""An API server in memory: requests, watches, conflicts and refusals, on Trio's clock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec
import trio

from ..errors import KubeRefused, KubeUnavailable
from .bodies import copied, merged, text_at, without
from .face import Access, Body, Change, ChangeType, Kind, Listing
from .history import Event, Selection, Stored
from .kinds import NAMESPACES, PODS
from .memory_control import Control
from .memory_objects import WITH_STATUS, Objects, Table, table_of
from .paths import typed

T = TypeVar("T", bound=msgspec.Struct)

BOOKMARK_EVERY_S: Final = 60.0  # as the API server does
LOG_LINES: Final = 1_000  # of a pod's log
LOGS: Final = 1_000  # pods whose logs are kept
_BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of it so far, and what it holds."""

    version: int
    objects: int
    requests: int
    lists: int
    watches: int
    watches_open: int


class MemoryApi:
    """See `Kube`. Everything happens in order, on Trio's clock; uids follow from `name`.

    Without `controllers` it is an API server alone: Jobs get no pods, and pods no node. `bookmark_every_s` is how often
    a quiet watch hears a version, and `watch_limit_s` how long a watch lasts.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        namespaces: tuple[str, ...] = ("default", "kube-system"),
        controllers: bool = True,
    ) -> None:
        self.name = name
        self.bookmark_every_s = BOOKMARK_EVERY_S
        self.watch_limit_s = math.inf
        self.control = Control(acts=controllers)
        self._objects = Objects(name, self.now_text, self._told)
        self.control.serve(self._objects)
        self._began_s: float | None = None
        self._lots: dict[Table, trio.lowlevel.ParkingLot] = {}
        self._logs: dict[str, list[str]] = {}  # by the pod's uid
        self._forbidden: dict[tuple[str, str, str], None] = {}
        self._away = False
        self._answer_lost = False
        self._cuts = 0
        self._cut_abruptly = False
        self._silences = 0
        self._requests = self._lists = self._watches = self._watches_open = 0
        for namespace in namespaces:
            self._objects.create(NAMESPACES, {"metadata": {"name": namespace}})

    # What a client asks

    async def list(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        """See `Kube`."""
        await self._enter("list", kind, namespace)
        self._lists += 1
        items = self.all_of(kind, namespace, labels=labels, fields=fields)
        return Listing(items=items, version=str(self._objects.version), served_at_s=self._unix_s())

    @contextlib.asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        """See `Kube`."""
        await self._enter("watch", kind, namespace)
        self._watches += 1
        self._watches_open += 1
        selection = Selection(namespace, labels, fields)
        try:
            async with contextlib.aclosing(self._changes(kind, selection, since)) as changes:
                yield changes
        finally:
            self._watches_open -= 1

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """See `Kube`."""
        await self._enter("get", kind, namespace)
        return self.find(kind, name, namespace)

    async def create(self, kind: Kind[T], body: Body, namespace: str = "") -> T:
        """See `Kube`."""
        await self._enter("create", kind, namespace)
        made = self._objects.create(kind, copied(body), namespace)
        return self._answer(kind, made)

    async def delete(
        self, kind: Kind[T], name: str, namespace: str = "", *, uid: str = "", grace_s: int | None = None
    ) -> bool:
        """See `Kube`."""
        await self._enter("delete", kind, namespace)
        stored = self._objects.at(kind, name, namespace)
        if stored is None or (uid and stored.uid != uid):
            return False
        self.control.end(kind, stored, grace_s)
        self.control.settle()
        self._lose_answer()
        return True

    async def patch(
        self, kind: Kind[T], name: str, body: Body, namespace: str = "", *, subresource: str = ""
    ) -> T | None:
        """See `Kube`."""
        await self._enter("patch", kind, namespace, subresource)
        stored = self._objects.at(kind, name, namespace)
        if stored is None:
            return None
        patch = copied(body)
        known = text_at(patch, "metadata", "resourceVersion")
        if known and known != str(stored.version):
            raise KubeRefused(409, "Conflict", f'{kind.plural} "{name}": the object has been modified')
        if subresource:
            patch = {subresource: patch.get(subresource, {})}
        elif kind.plural in WITH_STATUS:
            patch.pop("status", None)
        return self._answer(kind, self._objects.replace(kind, stored, merged(stored.body, patch)))

    async def apply(self, kind: Kind[T], body: Body, namespace: str = "", *, manager: str) -> T:
        """See `Kube`; lists are replaced as a whole here."""
        await self._enter("patch", kind, namespace)
        wanted = typed(kind, copied(body))
        stored = self._objects.at(kind, text_at(wanted, "metadata", "name"), namespace)
        if stored is None:
            made = self._objects.create(kind, wanted, namespace)
        else:
            rest = without(stored.body, stored.applied.get(manager, {}), wanted)
            made = self._objects.replace(kind, stored, merged(rest, wanted))
        made.applied[manager] = wanted
        return self._answer(kind, made)

    async def log_tail(self, pod: str, namespace: str, *, container: str, lines: int) -> str:
        """See `Kube`; a pod has one log here."""
        await self._enter("get", PODS, namespace, "log")
        stored = self._objects.at(PODS, pod, namespace)
        kept = self._logs.get(stored.uid, []) if stored is not None else []
        return "".join(f"{line}\n" for line in kept[-lines:])

    async def allowed(self, access: Access) -> bool:
        """See `Kube`."""
        await trio.lowlevel.checkpoint()
        self._expect_here()
        return not self._is_forbidden(access.verb, _resource(access.plural, access.subresource), access.namespace)

    # What whoever drives it sees, without being a client

    def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """One object, or None."""
        return self._objects.find(kind, name, namespace)

    def all_of(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> tuple[T, ...]:
        """Objects by namespace and name."""
        selection = Selection(namespace, labels, fields)
        found = (stored.read(kind.type) for stored in self._objects.all_of(kind, selection))
        return tuple(item for item in found if item is not None)

    def body_of(self, kind: Kind[T], name: str, namespace: str = "") -> Body | None:
        """All of an object, as it is stored."""
        stored = self._objects.at(kind, name, namespace)
        return stored.body if stored is not None else None

    def statistics(self) -> MemoryStatistics:
        """What was asked of it so far, and what it holds."""
        return MemoryStatistics(
            version=self._objects.version,
            objects=self._objects.count(),
            requests=self._requests,
            lists=self._lists,
            watches=self._watches,
            watches_open=self._watches_open,
        )

    # Faults

    def cut_watches(self, *, cleanly: bool = True) -> None:
        """End every watch: as a server does after a while, or as a network does."""
        self._cuts += 1
        self._cut_abruptly = not cleanly
        for lot in self._lots.values():
            lot.unpark_all()

    def silence_watches(self) -> None:
        """The watches there are bring nothing any more, and never end: as where a proxy lost what is behind it."""
        self._silences += 1

    def go_away(self) -> None:
        """Nothing is answered, until it comes back."""
        self._away = True
        self.cut_watches(cleanly=False)

    def come_back(self) -> None:
        """With everything that it had."""
        self._away = False

    def compact(self) -> None:
        """Forget what happened: watches that are not up to date must list again."""
        self._objects.compact()

    def lose_next_answer(self) -> None:
        """The next request that changes something is carried out, and then fails."""
        self._answer_lost = True

    def forbid(self, verb: str, plural: str, namespace: str = "*") -> None:
        """Refuse a verb from now on, in a namespace, or everywhere."""
        self._forbidden[verb, plural, namespace] = None

    def permit(self, verb: str, plural: str, namespace: str = "*") -> None:
        """Take a `forbid` back."""
        self._forbidden.pop((verb, plural, namespace), None)

    def write_log(self, pod: str, namespace: str, *lines: str) -> None:
        """Lines that a pod's container printed."""
        stored = self._objects.at(PODS, pod, namespace)
        if stored is not None:
            kept = self._logs.setdefault(stored.uid, [])
            kept += lines
            del kept[:-LOG_LINES]
            if len(self._logs) > LOGS:
                self._logs.pop(next(iter(self._logs)))

    # Requests

    async def _enter(self, verb: str, kind: Kind[T], namespace: str, subresource: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self._requests += 1
        self._expect_here()
        resource = _resource(kind.plural, subresource)
        if self._is_forbidden(verb, resource, namespace):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            told = f'{resource} is forbidden: cannot {verb} resource "{resource}" in API group "{kind.group}" {where}'
            raise KubeRefused(403, "Forbidden", told)

    def _expect_here(self) -> None:
        if self._away:
            raise KubeUnavailable(f"The API server of {self.name} cannot be reached: it refuses connections.")

    def _is_forbidden(self, verb: str, resource: str, namespace: str) -> bool:
        return (verb, resource, "*") in self._forbidden or (verb, resource, namespace) in self._forbidden

    def _answer(self, kind: Kind[T], stored: Stored) -> T:
        self.control.settle()
        self._lose_answer()
        read = stored.read(kind.type)
        assert read is not None, "what a client sent is read by its own type"
        return read

    def _lose_answer(self) -> None:
        if self._answer_lost:
            self._answer_lost = False
            raise KubeUnavailable(f"The API server of {self.name} cannot be reached: the connection was cut.")

    async def _changes(self, kind: Kind[T], selection: Selection, since: str) -> AsyncGenerator[Change[T], None]:
        history = self._objects.history(kind)
        lot = self._lots.setdefault(table_of(kind), trio.lowlevel.ParkingLot())
        position, cuts, silences = history.after(int(since)), self._cuts, self._silences
        ends_s = trio.current_time() + self.watch_limit_s
        while self._goes_on(cuts) and trio.current_time() < ends_s:
            if position < history.end:
                change = history.at(position).change(selection, kind.type)
                position += 1
                if change is not None:
                    await trio.lowlevel.checkpoint()
                    yield change
            else:
                with trio.move_on_at(min(ends_s, trio.current_time() + self.bookmark_every_s)) as scope:
                    await lot.park()
                speaks = silences == self._silences and self._goes_on(cuts)
                if scope.cancelled_caught and position == history.end and speaks:
                    yield Change(type=ChangeType.BOOKMARK, item=None, version=str(self._objects.version))
            if silences != self._silences:
                await trio.sleep_forever()

    def _goes_on(self, cuts: int) -> bool:
        if cuts == self._cuts:
            return True
        if self._cut_abruptly:
            raise KubeUnavailable(f"A watch of {self.name} broke: the connection was cut by the other side.")
        return False

    def _told(self, table: Table, event: Event) -> None:
        lot = self._lots.get(table)
        if lot is not None:
            lot.unpark_all()
        self.control.noticed(table, event)

    def _unix_s(self) -> float:
        return datetime.fromisoformat(self.now_text()).timestamp()

    def now_text(self, ago_s: float = 0.0) -> str:
        """The time as Kubernetes writes it; the first request is at the beginning of a year."""
        try:
            now_s = trio.current_time()
        except RuntimeError:  # made before Trio runs
            return f"{_BEGINNING:%Y-%m-%dT%H:%M:%SZ}"
        if self._began_s is None:
            self._began_s = now_s
        return f"{_BEGINNING + timedelta(seconds=now_s - self._began_s - ago_s):%Y-%m-%dT%H:%M:%SZ}"


def _resource(plural: str, subresource: str) -> str:
    return f"{plural}/{subresource}" if subresource else plural
