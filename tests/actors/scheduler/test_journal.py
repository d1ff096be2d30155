"""The journal's form: what was written is read, torn or whole, and what is damaged is told and not guessed."""

from __future__ import annotations

import struct
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler import events
from levers9.actors.scheduler.events import Decision, Ended, Event, Planned
from levers9.actors.scheduler.journal import (
    FORMAT,
    MARK,
    Header,
    Record,
    Segment,
    SegmentEncoder,
    encode_segment,
    read_journal,
)
from levers9.errors import JournalUnreadable

from .journals import busy_segment

STEPS = [Record(float(at), Ended(member=f"m{at}"), ()) for at in range(50)]


def kinds_of(base: type[Event] | type[Decision]) -> list[type[msgspec.Struct]]:
    return [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, base)]


def test_a_segment_is_read_as_it_was_written() -> None:
    segment = busy_segment()
    assert list(read_journal(encode_segment(segment))) == [segment]


def test_every_kind_of_event_and_of_decision_is_a_direct_one_so_that_a_journal_can_hold_it() -> None:
    for base in (Event, Decision):
        assert {kind.__name__ for kind in kinds_of(base)} - {base.__name__} == {
            kind.__name__ for kind in base.__subclasses__()
        }


def test_segments_one_after_the_other_are_one_file() -> None:
    first = busy_segment()
    second = msgspec.structs.replace(first, header=Header(8, 3, "0.1", "ours"), closed=False)
    assert list(read_journal(encode_segment(first) + encode_segment(second))) == [first, second]


def test_what_was_dropped_is_counted_at_the_end() -> None:
    encoder = SegmentEncoder(Header(1))
    data = encoder.open(1.0, ()) + encoder.add(STEPS[:2]) + encoder.close(dropped=9)
    (read,) = read_journal(data)
    assert (read.records, read.dropped, read.closed) == (tuple(STEPS[:2]), 9, True)
    assert (encoder.records, encoder.size_bytes) == (2, len(data))


@settings(settings.get_profile("property"))
@given(batches=st.lists(st.integers(0, 5), max_size=8), cut=st.integers(0, 10_000))
def test_a_torn_tail_is_read_up_to_the_last_whole_record(batches: list[int], cut: int) -> None:
    encoder = SegmentEncoder(Header(1))
    opened = encoder.open(1.0, (Planned(),))
    data, steps, whole = opened, iter(STEPS), 0
    written: list[Record] = []
    keep = len(opened) + cut
    for size in batches:
        batch = [next(steps) for _ in range(size)]
        data += encoder.add(batch)
        written += batch
        whole = len(written) if len(data) <= keep else whole
    (read,) = read_journal(data[:keep])
    assert list(read.records) == written[: len(read.records)]
    assert whole <= len(read.records)
    assert not read.closed


@settings(settings.get_profile("property"))
@given(at=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_never_gives_other_records(at: int, bit: int) -> None:
    whole = busy_segment()
    data = bytearray(encode_segment(whole))
    data[at % len(data)] ^= 1 << bit
    try:
        read: list[Segment] = list(read_journal(bytes(data)))
    except JournalUnreadable:
        return
    assert [segment.records for segment in read] == [whole.records[: len(read[0].records)]]


def packed(*bodies: bytes) -> bytes:
    framed = b"".join(struct.pack("!II", len(body), zlib.crc32(body)) + body for body in bodies)
    return MARK + struct.pack("!H", FORMAT) + zlib.compress(framed)


HEADER = msgspec.msgpack.encode(Header(1))
OPENING = msgspec.msgpack.encode(("opening", 1.0, ()))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "This file cannot be read: it does not begin as a journal does."),
        (b"PK\x03\x04", "it does not begin as a journal does"),
        (MARK, "it ends before its version"),
        (MARK + b"\x00\x09rest", "it is of version 9, and this program reads version 1"),
        (MARK + struct.pack("!H", FORMAT), "it ends before its snapshot is whole"),
        (MARK + struct.pack("!H", FORMAT) + b"not deflate", "Error -3"),
        (packed(HEADER), "it ends before its snapshot is whole"),
        (packed(OPENING, HEADER), "it ends before its snapshot is whole"),
        (packed(HEADER, OPENING, b"\x93\xa4step"), "cannot be read: "),
        (packed(HEADER, OPENING, msgspec.msgpack.encode(("step", 1.0, {"type": "Guessed"}, ()))), "Guessed"),
        (MARK + struct.pack("!H", FORMAT) + zlib.compress(struct.pack("!II", 1 << 31, 0)), "claims 2147483648 bytes"),
        (MARK + struct.pack("!H", FORMAT) + zlib.compress(struct.pack("!II", 1, 0) + b"x"), "not what was written"),
    ],
)
def test_what_cannot_be_read_is_told(data: bytes, why: str) -> None:
    with pytest.raises(JournalUnreadable) as caught:
        list(read_journal(data))
    assert why in str(caught.value)
    assert caught.value.code == "journal"


def test_a_small_file_cannot_unpack_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levers9.actors.scheduler.journal.SEGMENT_MAX_BYTES", 1 << 20)
    with pytest.raises(JournalUnreadable, match="unpacks to more than 1 MiB"):
        list(read_journal(packed(HEADER, OPENING, bytes(3 << 20))))


def test_a_record_is_small() -> None:
    segment = busy_segment()
    assert len(encode_segment(segment)) < 700
