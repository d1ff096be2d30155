"""Frames between worker and runner: a length, a letter, records. The worker's side is in `runtime/framing.py`."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

CALLS, DROPPED = b"C", b"D"
LOADED, LOAD_FAILED, RESULTS = b"L", b"X", b"R"
OK, ERROR = 0, 1

_HEAD = struct.Struct("<Ic")
_CALL = struct.Struct("<IIHBIH")
_RESULT = struct.Struct("<IBBdI")
_INDEX = struct.Struct("<I")


class Call(NamedTuple):
    """One call as it came. `rank0` is where the ranks of its gang meet, `host:port`; empty without a gang."""

    task_id: str
    attempt: int
    form: int
    data: bytes
    rank0: str


def frame(kind: bytes, body: bytes) -> bytes:
    """A whole frame."""
    return _HEAD.pack(len(body), kind) + body


def result(index: int, outcome: int, form: int, duration_s: float, data: bytes) -> bytes:
    """One record of a RESULTS frame."""
    return _RESULT.pack(index, outcome, form, duration_s, len(data)) + data


class Inbox:
    """Calls that came and were not asked for yet."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._calls: dict[int, Call] = {}

    def call(self, index: int) -> Call:
        """The call with this index; waits for it, since its claim may be ahead of its arguments."""
        while index not in self._calls:
            self._read_frame()
        return self._calls.pop(index)

    def _read_frame(self) -> None:
        length, kind = _HEAD.unpack(self._exactly(_HEAD.size))
        body = self._exactly(length)
        if kind == DROPPED:
            for (index,) in _INDEX.iter_unpack(body):
                self._calls.pop(index, None)
            return
        at = 0
        while at < length:
            index, attempt, name_length, form, size, rank0_length = _CALL.unpack_from(body, at)
            at += _CALL.size
            name_end = at + name_length
            name, data = body[at:name_end].decode(), body[name_end : name_end + size]
            at = name_end + size + rank0_length
            self._calls[index] = Call(name, attempt, form, data, body[name_end + size : at].decode())

    def _exactly(self, count: int) -> bytes:
        data = self._connection.recv(count, socket.MSG_WAITALL) if count else b""
        if len(data) == count:
            return data
        pieces = bytearray(data)
        while len(pieces) < count:
            piece = self._connection.recv(count - len(pieces))
            if not piece:
                raise SystemExit(0)
            pieces += piece
        return bytes(pieces)
