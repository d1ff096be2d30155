"""A letter is an opened envelope: what actors of one process pass to each other and find in their mailboxes."""

from __future__ import annotations

import msgspec

from ..model.ids import Chance
from .codec import Envelope, pack, unpack
from .message import Message


class Letter(msgspec.Struct, frozen=True):
    """A message with where it comes from and goes to. `kind` and `workspace` are the gateway's word on the sender.

    `id` names the letter when somebody waits for its answer; the answer carries it as `correlation`.
    `deadline_s` is Unix time, 0 for none: nobody waits for an answer after it.
    """

    message: Message
    source: str = ""
    target: str = ""
    workspace: str = ""
    kind: str = ""
    correlation: str = ""
    id: str = ""
    deadline_s: float = 0.0
    trace: str = ""

    @property
    def expects_answer(self) -> bool:
        """Whether somebody waits for an answer: an `ask`, or a caller's request."""
        return bool(self.id) and (self.deadline_s > 0 or type(self.message).sender == "client")

    def sentence(self) -> str:
        """The letter in words: its type and its two addresses."""
        return f"{type(self.message).__name__} from {self.source or 'nobody'} to {self.target or 'nobody'}"


def answer(letter: Letter, message: Message) -> Letter:
    """The letter that answers `letter` with `message`."""
    return Letter(
        message,
        source=letter.target,
        target=letter.source,
        workspace=letter.workspace,
        correlation=letter.id,
        trace=letter.trace,
    )


def seal(letter: Letter, chance: Chance) -> Envelope:
    """The envelope of a letter, ready for a link. A letter without an id gets one."""
    return Envelope(
        id=letter.id or chance.id("m"),
        source=letter.source,
        target=letter.target,
        payload=pack(letter.message),
        correlation=letter.correlation,
        workspace=letter.workspace,
        kind=letter.kind,
        deadline_s=letter.deadline_s,
        trace=letter.trace,
    )


def open_envelope(envelope: Envelope) -> Letter:
    """The letter in an envelope. Raises `PeerProtocolError` when its payload is no message."""
    return Letter(
        unpack(envelope.payload),
        source=envelope.source,
        target=envelope.target,
        workspace=envelope.workspace,
        kind=envelope.kind,
        correlation=envelope.correlation,
        id=envelope.id,
        deadline_s=envelope.deadline_s,
        trace=envelope.trace,
    )
