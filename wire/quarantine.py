"""Poison: a letter that crashes its handler three times is refused from then on, with the reason shown."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from ..errors import Refused
from ..model.figures import CRASHES_TO_QUARANTINE
from .codec import pack
from .letter import Letter

QUARANTINE_SLOTS: Final = 1_024
QUARANTINED: Final = "quarantined"


class Quarantine:
    """Which letters crashed their handler and how often; `reasons` says why some are refused since.

    For the next `singly` takes its mailbox hands out one letter at a time, so that the next crash has one suspect.
    """

    def __init__(self) -> None:
        self.suspect: Letter | None = None
        self.singly = 0
        self.reasons: OrderedDict[bytes, str] = OrderedDict()
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def count(self, in_hand: tuple[Letter, ...], why: str) -> None:
        """Count a crash against the suspect: the letter that was worked on, or the only one in hand."""
        suspect = self.suspect or (in_hand[0] if len(in_hand) == 1 else None)
        self.suspect = None
        if suspect is None:
            return
        key = _poison_key(suspect)
        times = self._counts.pop(key, 0) + 1
        if times < CRASHES_TO_QUARANTINE:
            self._counts[key] = times
        else:
            self.reasons[key] = f"{suspect.sentence()} crashed its handler {times} times, the last time with {why}"
        for ring in (self._counts, self.reasons):
            while len(ring) > QUARANTINE_SLOTS:
                ring.popitem(last=False)

    def refuse(self, letter: Letter) -> None:
        """Raise `Refused` if the letter is quarantined."""
        reason = self.reasons.get(_poison_key(letter))
        if reason is not None:
            raise Refused(
                f"{type(letter.message).__name__} was refused.",
                reason + ".",
                "Change what is in it, or restart the daemon once the cause is mended.",
                code=QUARANTINED,
            )


def _poison_key(letter: Letter) -> bytes:
    """What a letter is, whoever sends it again: its coalescing key where it has one, else all that it says."""
    key = letter.message.coalesce_key()
    said = f"{type(letter.message).__name__} {key}".encode() if key else pack(letter.message)
    return hashlib.blake2b(said, digest_size=16).digest()
