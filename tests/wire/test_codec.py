"""The bytes of yesterday: replicas and workers of another version send them, and stores hold them."""

from __future__ import annotations

import json
from typing import Final, cast

import msgspec
import pytest
from msgspec import inspect as types

from levers9.errors import PeerProtocolError
from levers9.wire.codec import MESSAGES, Envelope, unpack, unpack_batch

from .golden import PATH, bytes_of, readable

GOLDEN: Final = cast("dict[str, dict[str, object]]", json.loads(PATH.read_text()))
BY_NAME: Final = {kind.__name__: kind for kind in (*MESSAGES, Envelope)}
every_kind = pytest.mark.parametrize("name", sorted(GOLDEN))


def yesterday(name: str) -> bytes:
    return bytes.fromhex(cast(str, GOLDEN[name]["bytes"]))


def decoded(name: str, frame: bytes) -> msgspec.Struct:
    return unpack_batch(frame)[0] if name == "Envelope" else unpack(frame)


def holds(new: object, old: object) -> bool:
    """Whether all of `old` is in `new`, where it was; structs may have grown fields since."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and holds(new[key], value) for key, value in old.items())
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(new) >= len(old) and all(holds(*pair) for pair in zip(new, old))
    return new == old


def without_defaults(info: types.Type, plain: object) -> object:
    """The plain form of a value as somebody sends it who knows no field that has a default."""
    match info:
        case types.StructType(array_like=True) if isinstance(plain, list):
            needed = [field for field in info.fields if field.required]
            return [without_defaults(field.type, one) for field, one in zip(needed, plain)]
        case types.StructType() if isinstance(plain, dict):
            types_of = {field.encode_name: field.type for field in info.fields if field.required}
            kept = {key: without_defaults(types_of[key], one) for key, one in plain.items() if key in types_of}
            return kept | {key: one for key, one in plain.items() if key == info.tag_field}
        case types.VarTupleType() if isinstance(plain, list):
            return [without_defaults(info.item_type, one) for one in plain]
    return plain


def test_every_message_has_bytes_of_yesterday() -> None:
    assert BY_NAME.keys() == GOLDEN.keys(), "python tests/wire/golden.py adds those of a new message"


@every_kind
def test_the_bytes_of_yesterday_say_what_they_said(name: str) -> None:
    thing = decoded(name, yesterday(name))
    assert type(thing) is BY_NAME[name]
    assert holds(json.loads(msgspec.json.encode(readable(thing))), GOLDEN[name]["says"])


@every_kind
def test_what_was_said_yesterday_has_the_same_bytes_today(name: str) -> None:
    today = bytes_of(decoded(name, yesterday(name)))
    plain_today, plain_yesterday = msgspec.msgpack.decode(today), msgspec.msgpack.decode(yesterday(name))
    assert holds(plain_today, plain_yesterday)
    assert today == yesterday(name) or plain_today != plain_yesterday  # only a field more makes other bytes


@every_kind
def test_who_knows_no_field_with_a_default_is_understood(name: str) -> None:
    info = types.type_info(BY_NAME[name])
    assert isinstance(info, types.StructType)
    plain = msgspec.msgpack.decode(yesterday(name))
    old = without_defaults(info, plain[0]) if name == "Envelope" else without_defaults(info, plain)
    thing = decoded(name, msgspec.msgpack.encode([old] if name == "Envelope" else old))
    defaults = {field.name: field.default for field in info.fields if not field.required}
    assert {key: getattr(thing, key) for key in defaults} == defaults


def test_a_field_of_tomorrow_is_passed_over() -> None:
    plain = msgspec.msgpack.decode(yesterday("StopAsked")) | {"tomorrow": 1}
    assert unpack(msgspec.msgpack.encode(plain)) == unpack(yesterday("StopAsked"))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa4type\xa5Never", b"\x80"])
def test_what_is_no_message_is_the_peers_fault(payload: bytes) -> None:
    with pytest.raises(PeerProtocolError, match="the other side sent a message that cannot be read"):
        unpack(payload)


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x91\x91\xa1a"])
def test_what_is_no_frame_is_the_peers_fault(frame: bytes) -> None:
    with pytest.raises(PeerProtocolError, match="the other side sent a frame that cannot be read"):
        unpack_batch(frame)
