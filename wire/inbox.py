"""What waits for a link's owner: events in order, merged so that an owner who is slow finds few of them."""

from __future__ import annotations

from collections import deque

import trio

from ..errors import Busy, LeversError
from .codec import Envelope
from .session import Lost, Opened, PeerBack, PeerSilent, Received

LinkEvent = Opened | Received | PeerSilent | PeerBack | Lost


class Inbox:
    """`envelopes` wait, bounded by the session's window; other events replace each other while nobody looks."""

    def __init__(self) -> None:
        self._events: deque[LinkEvent | list[Envelope]] = deque()
        self.envelopes = 0
        self._arrived = trio.Event()
        self._waiting = False
        self._closed: LeversError | None = None

    def put(self, event: LinkEvent) -> None:
        """Append, or merge with what nobody has seen yet."""
        if isinstance(event, Received):
            self._put_envelopes(event.envelopes)
        elif not self._undone_by(event):
            self._events.append(event)
        self._arrived.set()

    def _put_envelopes(self, envelopes: tuple[Envelope, ...]) -> None:
        self.envelopes += len(envelopes)
        last = self._events[-1] if self._events else None
        if isinstance(last, list):
            last.extend(envelopes)
        else:
            self._events.append(list(envelopes))

    def _undone_by(self, event: LinkEvent) -> bool:
        if isinstance(event, PeerBack):
            return self._pop_last(PeerSilent)
        if not isinstance(event, Opened):
            return False
        unseen_loss = self._pop_last(Lost)
        if event.resumed:
            return unseen_loss
        self._pop_last(Opened)
        return False

    def _pop_last(self, kind: type[LinkEvent]) -> bool:
        if self._events and isinstance(self._events[-1], kind):
            self._events.pop()
            return True
        return False

    def close(self, error: LeversError) -> None:
        """After what is here, `take` raises this error; the first one counts."""
        self._closed = self._closed or error
        self._arrived.set()

    async def take(self) -> LinkEvent:
        """The next event. Raises `Busy` when two tasks wait, and the error of `close` at the end."""
        if self._waiting:
            raise Busy("two tasks wait for events of one link")
        await trio.lowlevel.checkpoint()
        self._waiting = True
        try:
            while not self._events:
                if self._closed is not None:
                    raise self._closed
                self._arrived = trio.Event()
                await self._arrived.wait()
        finally:
            self._waiting = False
        event = self._events.popleft()
        if not isinstance(event, list):
            return event
        self.envelopes -= len(event)
        return Received(tuple(event))
