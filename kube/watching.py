"""A watch as it arrives: lines of any length, cut anywhere, each an event. Pure."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from ..errors import KubeUnavailable
from .decoding import reader_of
from .face import Change, ChangeType
from .objects import Other
from .statuses import error_of, read_status

T = TypeVar("T", bound=msgspec.Struct)
LINE_MAX_BYTES: Final = 16 << 20  # etcd holds objects up to 1.5 MiB; as JSON a few times that
_CHANGES: Final = {each.value: each for each in ChangeType}


class Lines:
    """Bytes in, whole lines out. Raises `KubeUnavailable` for a line above `limit_bytes`."""

    def __init__(self, limit_bytes: int = LINE_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends; empty ones are left out."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._begun, whole[0]))
            self._begun, self._begun_bytes = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        longest = max(self._begun_bytes, max(map(len, whole), default=0))
        if longest > self._limit_bytes:
            raise KubeUnavailable(f"A watch brought a line of over {self._limit_bytes >> 20} MiB; that is no event.")
        return [line for line in whole if line.strip()]


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_event: Final = msgspec.json.Decoder(_Event)


class Events(Generic[T]):
    """Lines in, changes out."""

    def __init__(self, type_: type[T], asked: str) -> None:
        self._reader = reader_of(type_)
        self._meta = reader_of(Other)
        self._asked = asked
        self._lines = Lines()

    def feed(self, data: bytes) -> list[Change[T]]:
        """The changes in these bytes. Raises what an error event says, and `KubeUnavailable` for what is no event."""
        changes = []
        for line in self._lines.feed(data):
            change = self._read(line)
            if change is not None:
                changes.append(change)
        return changes

    def _read(self, line: bytes) -> Change[T] | None:
        try:
            event = _event.decode(line)
            if event.type == "ERROR":
                raise error_of(read_status(bytes(event.object), 500), self._asked)
            return self._change(event)
        except msgspec.MsgspecError as error:
            raise KubeUnavailable(f"{self._asked}: what came is no event of a watch ({error})") from error

    def _change(self, event: _Event) -> Change[T] | None:
        type_ = _CHANGES.get(event.type)
        if type_ is None:
            return None  # a kind of event that we don't know yet
        meta = self._meta.item(event.object)
        if meta is None:
            return None
        item = None if type_ is ChangeType.BOOKMARK else self._reader.item(event.object)
        if item is None and type_ is not ChangeType.BOOKMARK:
            type_ = ChangeType.BOOKMARK  # what cannot be read is passed over, but not looked at again
        return Change(type=type_, item=item, version=meta.metadata.resource_version)
