"""Messages to bytes and back: one tagged union of all messages, one envelope, batches of envelopes."""

from __future__ import annotations

from typing import Any, Final, Union

import msgspec

from ..errors import PeerProtocolError
from . import client, cluster, control, operating, scheduling, work
from .message import Message


def _messages() -> tuple[type[Message], ...]:
    found: list[type[Message]] = []
    for module in (client, work, scheduling, operating, cluster, control):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found.append(value)
    return tuple(dict.fromkeys(found))


MESSAGES: Final = _messages()


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message under way. Addresses are `tasks`, `worker/ID`, `client/ID` …; gateways set `source` and `workspace`.

    `deadline_s` is Unix time, 0 for none. `payload` stays packed, so that a relay never decodes it.
    """

    id: str
    source: str
    target: str
    payload: msgspec.Raw
    correlation: str = ""
    workspace: str = ""
    kind: str = ""  # the token kind of the sender, set by the gateway
    deadline_s: float = 0.0
    trace: str = ""


_encoder: Final = msgspec.msgpack.Encoder()
_message_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Union[MESSAGES])  # noqa: UP007
_batch_decoder: Final = msgspec.msgpack.Decoder(tuple[Envelope, ...])


def pack(message: Message) -> msgspec.Raw:
    """The bytes of a message, as an envelope's payload."""
    return msgspec.Raw(_encoder.encode(message))


def unpack(payload: msgspec.Raw | bytes) -> Message:
    """The message in a payload. Raises `PeerProtocolError` for anything that is none."""
    try:
        message = _message_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(f"the other side sent a message that cannot be read: {error}") from error
    assert isinstance(message, Message)
    return message


def pack_batch(envelopes: tuple[Envelope, ...] | list[Envelope]) -> bytes:
    """Whole envelopes as one frame."""
    return _encoder.encode(envelopes)


def unpack_batch(frame: bytes | bytearray | memoryview) -> tuple[Envelope, ...]:
    """The envelopes of a frame. Raises `PeerProtocolError` for anything else."""
    try:
        return _batch_decoder.decode(frame)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(f"the other side sent a frame that cannot be read: {error}") from error
