"""What a peer may say, and the stamp that says who it was. Pure, and on the hot path: payloads are never decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...wire.codec import MESSAGES, Envelope

_TYPE_KEY: Final = b"\xa4type"
_FIXMAP: Final = range(0x80, 0x90)
_LARGE: Final = b"\xde"  # a map of more than 15 fields: two bytes more say how many
_FIXSTR: Final = range(0xA0, 0xC0)
_STR8: Final = 0xD9
_HEAD_BYTES: Final = 80
_NOT_ON_STREAMS: Final = frozenset({"supervisor"})  # inspection is for the platform's admin, and goes over REST


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway writes on each envelope of a peer; `role` is "client", "worker" or "agent"."""

    role: str
    source: str
    workspace: str
    kind: str


def _receivers(role: str) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for message in MESSAGES:
        tag = message.__struct_config__.tag
        if message.sender == role and message.receiver not in _NOT_ON_STREAMS and isinstance(tag, str):
            found[tag.encode()] = message.receiver
    return found


_SAYS: Final = {role: _receivers(role) for role in ("client", "worker", "agent")}


def tag_of(payload: msgspec.Raw | bytes) -> bytes:
    """The name of the message in a payload: our encoder writes it first. Empty for what our encoder did not write."""
    head = bytes(memoryview(payload)[:_HEAD_BYTES])
    if head[:1] == _LARGE:
        head = b"\x80" + head[3:]
    if len(head) < 8 or head[0] not in _FIXMAP or head[1:6] != _TYPE_KEY:
        return b""
    if head[6] in _FIXSTR:
        return head[7 : 7 + (head[6] & 0x1F)]
    return head[8 : 8 + head[7]] if head[6] == _STR8 else b""


def stamped(stamp: Stamp, envelopes: Iterable[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
    """The envelopes that this peer may send, stamped, and those that it may not."""
    says = _SAYS[stamp.role]
    source, workspace, kind = stamp.source, stamp.workspace, stamp.kind
    passed: list[Envelope] = []
    refused: list[Envelope] = []
    for one in envelopes:
        if says.get(tag_of(one.payload)) != one.target:
            refused.append(one)
            continue
        passed.append(
            Envelope(
                one.id, source, one.target, one.payload, one.correlation, workspace, kind, one.deadline_s, one.trace
            )
        )
    return passed, refused


def by_target(envelopes: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    """Group by target, each group in order."""
    groups: dict[str, list[Envelope]] = {}
    for one in envelopes:
        group = groups.get(one.target)
        if group is None:
            groups[one.target] = [one]
        else:
            group.append(one)
    return groups
