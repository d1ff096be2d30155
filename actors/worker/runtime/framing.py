"""The worker's side of the frames between worker and runner (their layout is in `runner/levers9_runner/frames.py`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ....wire.message import Failure
from ....wire.work import AttemptOrder

CALLS, DROPPED = b"C", b"D"
LOADED, LOAD_FAILED, RESULTS = b"L", b"X", b"R"
FORMATS: Final = ("msgpack", "pickle")

_HEAD: Final = struct.Struct("<Ic")
_CALL: Final = struct.Struct("<IIHBIH")
_RESULT: Final = struct.Struct("<IBBdI")
_CLAIM: Final = struct.Struct("<I")
_failure: Final = msgspec.msgpack.Decoder(Failure)


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """One result as the runner reports it."""

    index: int
    ok: bool
    format: str
    duration_s: float
    data: bytes


def calls_frame(calls: Iterable[tuple[int, AttemptOrder]]) -> bytes:
    """A frame of calls, each with its index."""
    pieces: list[bytes] = []
    for index, order in calls:
        name, rank0 = order.task_id.encode(), order.rank0.encode()
        data = order.arguments.data
        form = FORMATS.index(order.arguments.format)
        pieces.append(_CALL.pack(index, order.attempt, len(name), form, len(data), len(rank0)))
        pieces += (name, data, rank0)
    return _frame(CALLS, b"".join(pieces))


def dropped_frame(indexes: Iterable[int]) -> bytes:
    """A frame that names calls the runner may forget."""
    return _frame(DROPPED, claims(indexes))


def claims(indexes: Iterable[int]) -> bytes:
    """Indexes as they stand in the claim pipe."""
    return b"".join(map(_CLAIM.pack, indexes))


def claimed(data: bytes) -> tuple[int, ...]:
    """Indexes read from the claim pipe."""
    return tuple(index for (index,) in _CLAIM.iter_unpack(data))


def _frame(kind: bytes, body: bytes) -> bytes:
    return _HEAD.pack(len(body), kind) + body


def outcomes(body: bytes) -> Iterator[Outcome]:
    """The records of a RESULTS frame."""
    at = 0
    while at < len(body):
        index, outcome, form, duration_s, size = _RESULT.unpack_from(body, at)
        at += _RESULT.size
        yield Outcome(index, outcome == 0, FORMATS[form], duration_s, body[at : at + size])
        at += size


def failure(body: bytes) -> Failure:
    """The failure in a record or in a LOAD_FAILED frame."""
    return _failure.decode(body)


class FrameReader:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Take what came; return the kinds and bodies of frames that are complete."""
        self._buffer += data
        found: list[tuple[bytes, bytes]] = []
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer, at)
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            found.append((kind, bytes(self._buffer[at + _HEAD.size : end])))
            at = end
        del self._buffer[:at]
        return found
