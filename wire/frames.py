"""The frames of a session: five kinds, msgpack arrays that begin with a number (SPEC.md, "Frames")."""

from __future__ import annotations

from typing import Final

import msgspec

from ..errors import TOO_LARGE, PeerProtocolError, Refused
from ..model.figures import FRAME_MAX_BYTES
from .codec import Envelope

PROTOCOL: Final = 1
FRAME_OVERHEAD_BYTES: Final = 64  # a Data frame's own words, rounded up
ENVELOPE_MAX_BYTES: Final = FRAME_MAX_BYTES - FRAME_OVERHEAD_BYTES


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The dialler's first frame. `session` is empty when it has none to resume."""

    protocol: int
    session: str
    received: int
    acknowledged: int


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The acceptor's answer. Not `resumed`: `session` is a new one, and both count from nothing."""

    protocol: int
    session: str
    resumed: bool
    received: int
    acknowledged: int


class Data(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Envelopes in order, the first with the sequence number `first`."""

    first: int
    acknowledged: int
    envelopes: tuple[Envelope, ...]


class PackedData(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """`Data` as it is written: each envelope is already packed."""

    first: int
    acknowledged: int
    envelopes: list[msgspec.Raw]


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An acknowledgement without data; also the heartbeat."""

    acknowledged: int


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The session is over once everything up to the sequence number `sent` has arrived."""

    sent: int
    why: str


Frame = Hello | Welcome | Data | Ack | Goodbye

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Frame]] = msgspec.msgpack.Decoder(Frame)


def pack_envelope(envelope: Envelope) -> bytes:
    """An envelope's bytes. Raises `Refused` when it could not travel in one frame."""
    packed = _encoder.encode(envelope)
    if len(packed) > ENVELOPE_MAX_BYTES:
        raise Refused(
            f"A message of {len(packed)} bytes for {envelope.target} is too large.",
            f"One message holds up to {ENVELOPE_MAX_BYTES} bytes.",
            "Put its content in the object store and send the key.",
            TOO_LARGE,
        )
    return packed


def pack_frame(frame: Hello | Welcome | PackedData | Ack | Goodbye) -> bytes:
    """A frame's bytes."""
    return _encoder.encode(frame)


def unpack_frame(frame: bytes) -> Frame:
    """The frame in these bytes. Raises `PeerProtocolError` for anything else."""
    if len(frame) > FRAME_MAX_BYTES:
        raise PeerProtocolError(f"the other side sent a frame of {len(frame)} bytes; {FRAME_MAX_BYTES} are allowed")
    try:
        return _decoder.decode(frame)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(f"the other side sent a frame that cannot be read: {error}") from error
