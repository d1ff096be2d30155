"""What every message is: a frozen, tagged Struct that says who sends it, who gets it, what a full mailbox does."""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from ..errors import Refused


class WhenFull(enum.Enum):
    """What happens when the receiver's mailbox is full."""

    BLOCK = "block"
    REJECT = "reject"
    COALESCE = "coalesce"


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all messages. New fields have defaults; nothing is renamed or reordered."""

    sender: ClassVar[str] = ""
    receiver: ClassVar[str] = ""
    when_full: ClassVar[WhenFull] = WhenFull.BLOCK

    def coalesce_key(self) -> str:
        """Messages of one type, source and key replace each other where `when_full` is COALESCE."""
        return ""


class Send(msgspec.Struct, frozen=True):
    """A message that a policy wants sent, once what it decided is committed."""

    target: str
    message: Message
    correlation: str = ""


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """Packed arguments or a result: in `data` up to 512 KiB, beyond that in the object store under `object_key`.

    `format` is "msgpack" for plain values, "pickle" for what cloudpickle packed; the control plane unpacks neither.
    """

    format: str
    data: bytes = b""
    object_key: str = ""
    size_bytes: int = 0


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why something ended without a result, in words a person can act on.

    `code` is stable; `exception` is the cloudpickled remote exception where there was one; `traceback` is its text.
    """

    code: str
    what: str
    why: str = ""
    fix: str = ""
    exception: bytes = b""
    traceback: str = ""

    @classmethod
    def of(cls, refused: Refused) -> Failure:
        """A refusal, to be told to who asked."""
        return cls(refused.code, refused.what, refused.why, refused.fix)

    @property
    def what_and_why(self) -> str:
        """Both as one text."""
        return " ".join(part for part in (self.what, self.why) if part)
