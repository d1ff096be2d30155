"""What happened to the objects of one kind, so that watches can go on where they were. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, TypeVar

import msgspec

from ..errors import KubeRefused, Refused, VersionGone
from ..model import selectors
from .bodies import Json, text_at, texts_at
from .decoding import lenient
from .face import Change, ChangeType

T = TypeVar("T", bound=msgspec.Struct)
KEPT: Final = 4_096  # changes of a kind, at least; half as many again are dropped at once
_FIELDS: Final = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
}


class Stored:
    """An object at one version. `applied` has what each manager applied last."""

    __slots__ = ("_read", "applied", "body", "name", "namespace", "uid", "version")

    def __init__(self, body: Json, version: int, applied: dict[str, Json]) -> None:
        self.body = body
        self.version = version
        self.applied = applied
        self.name = text_at(body, "metadata", "name")
        self.namespace = text_at(body, "metadata", "namespace")
        self.uid = text_at(body, "metadata", "uid")
        self._read: msgspec.Struct | None = None

    def read(self, type_: type[T]) -> T | None:
        """As a struct: each version is converted once, unless it is read in several ways."""
        if isinstance(self._read, type_):
            return self._read
        try:
            read: T | None = msgspec.convert(self.body, type_)
        except msgspec.ValidationError:
            read = lenient(self.body, type_)
        self._read = read
        return read


class Selection:
    """Which objects a list or a watch is about. Raises `KubeRefused` for selectors that cannot be understood."""

    def __init__(self, namespace: str, labels: str, fields: str) -> None:
        self._namespace = namespace
        self._fields = tuple(_field(part) for part in fields.split(",") if part)
        try:
            self._labels = selectors.parse(labels)
        except Refused as error:
            raise KubeRefused(400, "BadRequest", f"unable to parse requirement: {error}") from error

    def has(self, stored: Stored) -> bool:
        """Whether this object is meant."""
        if self._namespace and stored.namespace != self._namespace:
            return False
        if any((text_at(stored.body, *path) == value) is not equal for path, value, equal in self._fields):
            return False
        if not self._labels:
            return True
        labels = texts_at(stored.body, "metadata", "labels")
        return all(term.matches(labels) for term in self._labels)


def _field(part: str) -> tuple[tuple[str, ...], str, bool]:
    key, mark, value = part.partition("!=") if "!=" in part else part.partition("=")
    if key not in _FIELDS or not mark:
        raise KubeRefused(400, "BadRequest", f'"{part}" is not a known field selector')
    return _FIELDS[key], value.removeprefix("="), mark == "="


class Event:
    """An object before and after; None where there was, or is, none. `version` is that of the change."""

    __slots__ = ("after", "before", "version")

    def __init__(self, version: int, before: Stored | None, after: Stored | None) -> None:
        self.version = version
        self.before = before
        self.after = after

    def change(self, selection: Selection, type_: type[T]) -> Change[T] | None:
        """What a watch of a selection says of it: an object that leaves the selection is deleted there."""
        was = self.before is not None and selection.has(self.before)
        now = self.after if self.after is not None and selection.has(self.after) else None
        if now is not None:
            told = ChangeType.MODIFIED if was else ChangeType.ADDED
            return Change(type=told, item=now.read(type_), version=str(self.version))
        if not was or self.before is None:
            return None
        gone = _at_version(self.after or self.before, self.version)
        return Change(type=ChangeType.DELETED, item=gone.read(type_), version=str(self.version))


def _at_version(stored: Stored, version: int) -> Stored:
    metadata = {**texts_at(stored.body, "metadata"), "resourceVersion": str(version)}
    return Stored({**stored.body, "metadata": metadata}, version, {})


class History:
    """Changes of one kind by position: 0, 1, 2 …; the oldest are forgotten."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._first = 0  # position of the oldest that is kept
        self._forgotten_version = 0  # of the newest that is not

    @property
    def end(self) -> int:
        """The position of the change that comes next."""
        return self._first + len(self._events)

    def add(self, event: Event) -> None:
        """Keep a change."""
        self._events.append(event)
        if len(self._events) > KEPT + KEPT // 2:
            self._forget(KEPT // 2)

    def compact(self, version: int) -> None:
        """Forget all, and everything up to a version."""
        self._forget(len(self._events))
        self._forgotten_version = max(self._forgotten_version, version)

    def after(self, version: int) -> int:
        """The position of the first change after a version. Raises `VersionGone`."""
        if version < self._forgotten_version:
            raise gone(version, self._forgotten_version)
        return self._first + bisect_right(self._events, version, key=lambda event: event.version)

    def at(self, position: int) -> Event:
        """The change at a position. Raises `VersionGone`."""
        if position < self._first:
            raise gone(position, self._first)
        return self._events[position - self._first]

    def _forget(self, count: int) -> None:
        if count:
            self._forgotten_version = self._events[count - 1].version
            self._first += count
            del self._events[:count]


def gone(version: int, oldest: int) -> VersionGone:
    """What is said of a version that is too old."""
    return VersionGone(410, "Expired", f"too old resource version: {version} ({oldest})")
