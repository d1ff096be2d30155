"""The journal's form: segments that each open with a snapshot, so that any one of them can be replayed alone.

A segment is a mark and a version, then one deflate stream of records, flushed after each batch: what was written before
a crash is read up to the last whole record. A record has its length and a checksum before it, and is msgpack in arrays.
A file may hold several segments, one after the other; the last one need not be closed.
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Final, TypeVar

import msgspec

from ...errors import JournalUnreadable
from .events import Decision, Event

FORMAT: Final = 1
MARK: Final = b"\x89L9JRNL\n"  # the first byte is no text, as in PNG's mark
RECORD_MAX_BYTES: Final = 256 << 20  # a snapshot of a million requests
SEGMENT_MAX_BYTES: Final = 1 << 30  # unpacked: a small file that unpacks to more is no journal of ours
_VERSION: Final = struct.Struct("!H")
_PREFIX: Final = struct.Struct("!II")  # length, CRC-32
_READ_BYTES: Final = 1 << 16


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """Who wrote a segment. `placement` is the policy of pools that name none."""

    number: int
    epoch: int = 0
    core: str = ""  # the version of the program
    placement: str = ""


class Record(msgspec.Struct, frozen=True):
    """One step of the core: what it was told, when (Unix seconds), and what it decided."""

    now_s: float
    event: Event
    decisions: tuple[Decision, ...]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the journal. `opening` brings an empty core into the standing before the first record.

    `dropped` records are missing after the last one: they came faster than they could be written. `closed`: the writer
    ended the segment in good order, so nothing else is missing.
    """

    header: Header
    opened_at_s: float
    opening: tuple[Event, ...]
    records: tuple[Record, ...]
    dropped: int = 0
    closed: bool = False


class _Opening(msgspec.Struct, frozen=True, array_like=True, tag="opening"):
    at_s: float
    events: tuple[msgspec.Raw, ...]


class _Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    now_s: float
    event: msgspec.Raw
    decisions: tuple[msgspec.Raw, ...]


class _Gap(msgspec.Struct, frozen=True, array_like=True, tag="gap"):
    dropped: int


_Kind = TypeVar("_Kind")


def _decoder(base: type[_Kind]) -> msgspec.msgpack.Decoder[_Kind]:
    """For every kind of event, or of decision, that `events` knows."""
    kinds: type[_Kind] = reduce(operator.or_, base.__subclasses__())
    return msgspec.msgpack.Decoder(kinds)


_encoder: Final = msgspec.msgpack.Encoder()
_items: Final = msgspec.msgpack.Decoder(Header | _Opening | _Step | _Gap)
_events: Final = _decoder(Event)
_decisions: Final = _decoder(Decision)


# Writing


class SegmentEncoder:
    """Makes the bytes of one segment, in the order in which they are to be written."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._packer = zlib.compressobj()
        self.records = 0
        self.size_bytes = 0

    def open(self, at_s: float, opening: Iterable[Event]) -> bytes:
        """The beginning: who writes, and the standing from which the records go on."""
        first = _encoder.encode(self._header), _encoder.encode(("opening", at_s, tuple(opening)))
        return self._counted(MARK + _VERSION.pack(FORMAT) + self._packed(*first))

    def add(self, records: Iterable[Record]) -> bytes:
        """The next records. Once these bytes are written, they can be read whatever happens to later ones."""
        steps = [_encoder.encode(("step", each.now_s, each.event, each.decisions)) for each in records]
        self.records += len(steps)
        return self._counted(self._packed(*steps))

    def close(self, dropped: int = 0) -> bytes:
        """The end; `dropped` records would have come before it."""
        gap = self._packed(_encoder.encode(("gap", dropped))) if dropped else b""
        return self._counted(gap + self._packer.flush())

    def _packed(self, *bodies: bytes) -> bytes:
        framed = b"".join(_PREFIX.pack(len(body), zlib.crc32(body)) + body for body in bodies)
        return self._packer.compress(framed) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def _counted(self, data: bytes) -> bytes:
        self.size_bytes += len(data)
        return data


def encode_segment(segment: Segment) -> bytes:
    """A whole segment at once."""
    encoder = SegmentEncoder(segment.header)
    data = encoder.open(segment.opened_at_s, segment.opening) + encoder.add(segment.records)
    return data + (encoder.close(segment.dropped) if segment.closed else b"")


# Reading


def read_journal(data: bytes) -> Iterator[Segment]:
    """The segments of a file, in order. Raises `JournalUnreadable` for what is damaged or of another version."""
    if not data.startswith(MARK):
        raise JournalUnreadable(0, "it does not begin as a journal does")
    begins = 0
    number = 1
    while begins >= 0:
        ends = data.find(MARK, begins + len(MARK))
        yield _read_segment(data[begins + len(MARK) : ends if ends >= 0 else len(data)], number)
        begins, number = ends, number + 1


def _read_segment(data: bytes, place: int) -> Segment:
    if len(data) < _VERSION.size:
        raise JournalUnreadable(place, "it ends before its version")
    (version,) = _VERSION.unpack_from(data)
    if version != FORMAT:
        raise JournalUnreadable(place, f"it is of version {version}, and this program reads version {FORMAT}")
    try:
        plain, closed = _unpacked(data[_VERSION.size :], place)
        return _segment_of([_items.decode(body) for body in _bodies(plain, place)], closed, place)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise JournalUnreadable(place, str(error)) from error


def _unpacked(data: bytes, place: int) -> tuple[bytes, bool]:
    """The records' bytes as far as they go, and whether the stream was ended by its writer."""
    unpacker = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(data), _READ_BYTES):
        rest = data[start : start + _READ_BYTES]
        while rest:
            parts.append(unpacker.decompress(rest, _READ_BYTES * 16))
            size += len(parts[-1])
            rest = unpacker.unconsumed_tail
            if size > SEGMENT_MAX_BYTES:
                raise JournalUnreadable(place, f"it unpacks to more than {SEGMENT_MAX_BYTES >> 20} MiB")
    return b"".join(parts), unpacker.eof


def _bodies(plain: bytes, place: int) -> Iterator[bytes]:
    """Whole records; a torn one at the end is left out."""
    at = 0
    while at + _PREFIX.size <= len(plain):
        length, checksum = _PREFIX.unpack_from(plain, at)
        if length > RECORD_MAX_BYTES:
            raise JournalUnreadable(place, f"a record at byte {at} claims {length} bytes")
        body = plain[at + _PREFIX.size : at + _PREFIX.size + length]
        if len(body) < length:
            return
        if zlib.crc32(body) != checksum:
            raise JournalUnreadable(place, f"the record at byte {at} is not what was written")
        yield body
        at += _PREFIX.size + length


def _segment_of(items: list[Header | _Opening | _Step | _Gap], closed: bool, place: int) -> Segment:
    if len(items) < 2 or not isinstance(items[0], Header) or not isinstance(items[1], _Opening):
        raise JournalUnreadable(place, "it ends before its snapshot is whole")
    header, opening = items[0], items[1]
    return Segment(
        header=header,
        opened_at_s=opening.at_s,
        opening=tuple([_events.decode(event) for event in opening.events]),
        records=tuple([_record(item) for item in items[2:] if isinstance(item, _Step)]),
        dropped=sum(item.dropped for item in items if isinstance(item, _Gap)),
        closed=closed,
    )


def _record(step: _Step) -> Record:
    return Record(step.now_s, _events.decode(step.event), tuple([_decisions.decode(each) for each in step.decisions]))
