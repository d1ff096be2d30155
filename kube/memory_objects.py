"""The objects of the in-memory cluster: versions, uids, generations, and what is told of each change. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ..errors import AlreadyThere, KubeRefused
from .bodies import Json, map_at, merged, number_at, text_at
from .face import Kind
from .history import Event, History, Selection, Stored
from .kinds import NAMESPACES
from .paths import typed

T = TypeVar("T", bound=msgspec.Struct)

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMED_FREELY: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
WITH_STATUS: Final = frozenset({"pods", "jobs", "nodes", "namespaces", "deployments"})
_BORN_WITH_STATUS: Final = frozenset({"nodes"})
_SERVER_OWNED: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")

Place = tuple[str, str]  # namespace, name
Table = tuple[str, str]  # group, plural


class Objects:
    """What is stored. `now` is the time as Kubernetes writes it; `told` hears of each change once it is stored."""

    def __init__(self, name: str, now: Callable[[], str], told: Callable[[Table, Event], None]) -> None:
        self.version = 1
        self.now = now
        self._name = name
        self._told = told
        self._uids = 0
        self._tables: dict[Table, dict[Place, Stored]] = {}
        self._histories: dict[Table, History] = {}

    def at(self, kind: Kind[T], name: str, namespace: str = "") -> Stored | None:
        """One object, or None."""
        return self._table(kind).get((namespace if kind.namespaced else "", name))

    def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """One object as a struct, or None."""
        stored = self.at(kind, name, namespace)
        return stored.read(kind.type) if stored is not None else None

    def all_of(self, kind: Kind[T], selection: Selection | None = None) -> list[Stored]:
        """Objects in the order of their keys, as etcd has them: "a-b/x" before "a/x"."""
        kept = self._table(kind).values()
        chosen = [stored for stored in kept if selection is None or selection.has(stored)]
        return sorted(chosen, key=lambda stored: f"{stored.namespace}/{stored.name}")

    def history(self, kind: Kind[T]) -> History:
        """What happened to the objects of a kind."""
        return self._histories.setdefault(table_of(kind), History())

    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self._tables.values()))

    def compact(self) -> None:
        """Forget what happened."""
        for table in self._tables:
            self._histories.setdefault(table, History()).compact(self.version)

    def create(self, kind: Kind[T], body: Json, namespace: str = "") -> Stored:
        """Make an object. Raises `KubeRefused` and `AlreadyThere`."""
        metadata = map_at(body, "metadata")
        namespace = (namespace or text_at(metadata, "namespace")) if kind.namespaced else ""
        name = text_at(metadata, "name")
        self._expect_valid(kind, name, namespace)
        born: Json = {"uid": self._uid(), "creationTimestamp": self.now(), "generation": 1}
        if namespace:
            born["namespace"] = namespace
        whole: Json = {**typed(kind, body), "metadata": {**metadata, "name": name, **born}}
        if kind.plural in WITH_STATUS - _BORN_WITH_STATUS:
            whole["status"] = {"phase": "Pending"} if kind.plural == "pods" else {}
        return self._commit(kind, None, whole, {})

    def replace(self, kind: Kind[T], stored: Stored, body: Json) -> Stored:
        """The object at its next version, or the one that is there where nothing changed."""
        had = map_at(stored.body, "metadata")
        kept = {key: had[key] for key in _SERVER_OWNED if key in had}
        said = {key: value for key, value in map_at(body, "metadata").items() if key not in _SERVER_OWNED}
        metadata = said | kept
        new: Json = {**body, "metadata": metadata}
        if new == stored.body:
            return stored
        if _asks_for_other(stored.body, new):
            metadata["generation"] = number_at(had, "generation") + 1
        return self._commit(kind, stored, new, stored.applied)

    def patch(self, kind: Kind[T], stored: Stored, patch: Json) -> Stored:
        """Merge into it."""
        return self.replace(kind, stored, merged(stored.body, patch))

    def mark_deleted(self, kind: Kind[T], stored: Stored) -> Stored:
        """An object that is about to go, and is still there."""
        metadata = {**map_at(stored.body, "metadata"), "deletionTimestamp": self.now()}
        return self._commit(kind, stored, {**stored.body, "metadata": metadata}, stored.applied)

    def remove(self, kind: Kind[T], stored: Stored) -> None:
        """Take an object away; one that is gone already stays so."""
        self._remove(table_of(kind), stored)

    def remove_inside(self, namespace: str) -> None:
        """Take away whatever is in a namespace."""
        for table, kept in self._tables.items():
            for stored in [each for each in kept.values() if each.namespace == namespace]:
                self._remove(table, stored)

    def _remove(self, table: Table, stored: Stored) -> None:
        if self._tables[table].get((stored.namespace, stored.name)) is stored:
            del self._tables[table][stored.namespace, stored.name]
            self.version += 1
            self._tell(table, Event(self.version, stored, None))

    def _table(self, kind: Kind[T]) -> dict[Place, Stored]:
        return self._tables.setdefault(table_of(kind), {})

    def _commit(self, kind: Kind[T], before: Stored | None, body: Json, applied: dict[str, Json]) -> Stored:
        self.version += 1
        metadata = {**map_at(body, "metadata"), "resourceVersion": str(self.version)}
        after = Stored({**body, "metadata": metadata}, self.version, applied)
        self._table(kind)[after.namespace, after.name] = after
        self._tell(table_of(kind), Event(self.version, before, after))
        return after

    def _tell(self, table: Table, event: Event) -> None:
        self._histories.setdefault(table, History()).add(event)
        self._told(table, event)

    def _expect_valid(self, kind: Kind[T], name: str, namespace: str) -> None:
        if kind.plural not in _NAMED_FREELY and not _NAME.fullmatch(name):
            told = f'{kind.singular} "{name}" is invalid: metadata.name: Invalid value: a lowercase RFC 1123 subdomain'
            raise KubeRefused(422, "Invalid", told)
        if kind.namespaced and not namespace:
            raise KubeRefused(405, "MethodNotAllowed", "the server does not allow this method without a namespace")
        if kind.namespaced and self.at(NAMESPACES, namespace) is None:
            raise KubeRefused(404, "NotFound", f'namespaces "{namespace}" not found')
        if self.at(kind, name, namespace) is not None:
            raise AlreadyThere(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')

    def _uid(self) -> str:
        self._uids += 1
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}/{self._uids}"))


def table_of(kind: Kind[T]) -> Table:
    """Where objects of a kind are kept."""
    return (kind.group, kind.plural)


def _asks_for_other(old: Json, new: Json) -> bool:
    """Whether anything but metadata and status differs: that is another generation."""
    keys = dict.fromkeys((*old, *new))
    return any(old.get(key) != new.get(key) for key in keys if key not in ("metadata", "status"))
