"""Links: sessions kept alive over carriers. `DialledLink` dials and redials; `Acceptor` takes what arrives."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ..errors import BrokenByPeer, ClosedByUs, PeerProtocolError, Refused
from ..model.figures import DIAL_LIMIT_S, HANDSHAKE_LIMIT_S, SESSION_KEPT_S
from ..model.ids import Chance
from .carrier import Carrier
from .endpoint import Link, LinkStatistics
from .frames import PROTOCOL, Hello, unpack_frame
from .inbox import LinkEvent
from .redial import Redial
from .session import Lost, Opened, PeerBack, PeerSilent, Received, Session, SessionEvent
from .sweep import Sweep

__all__ = [
    "Acceptor",
    "DialledLink",
    "Link",
    "LinkEvent",
    "LinkStatistics",
    "Lost",
    "Opened",
    "PeerBack",
    "PeerSilent",
    "Received",
]

_EARLY_FRAMES: Final = 64  # frames of an earlier carrier that may arrive ahead of HELLO


class DialledLink(Link):
    """The end that dials. Its sessions end when the other side forgets them; the link goes on with a new one."""

    def __init__(
        self,
        *,
        name: str,
        dial: Callable[[], Awaitable[Carrier]],
        chance: Chance,
        redial: Redial | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        super().__init__(name, Session(now=clock()), clock)
        self._dial = dial
        self._chance = chance
        self._redial = redial or Redial()
        self._sweep = Sweep((self,), clock)
        self._opened_at = math.inf
        self._task_status: trio.TaskStatus[None] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Dial, and redial with full jitter, until cancelled or closed. Started once the first session is open.

        Raises `Refused` as soon as the other side refuses us for good.
        """
        self._task_status = task_status
        refused: Refused | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sweep.run)
                try:
                    await self._keep_dialling()
                except Refused as error:
                    refused = error
                nursery.cancel_scope.cancel()
        finally:
            self.end(refused or ClosedByUs(f"{self.name} is not dialled any more"))
        if refused is not None:
            raise refused

    async def _keep_dialling(self) -> None:
        while self.ended_by is None:
            self._opened_at = math.inf
            await self._dial_once()
            healthy_s = max(0.0, self._clock() - self._opened_at)
            with trio.move_on_after(self._redial.wait_s(self._chance, healthy_s)):
                await self.ended.wait()

    async def _dial_once(self) -> None:
        try:
            with trio.fail_after(DIAL_LIMIT_S):
                carrier = await self._dial()
        except (BrokenByPeer, OSError, trio.TooSlowError):
            return
        try:
            await self.carry(carrier, lambda: self._greet(carrier))
        finally:
            await carrier.aclose()

    def _greet(self, carrier: Carrier) -> list[SessionEvent]:
        self.session.dial(ordered=carrier.ordered)
        return []

    def _opened(self) -> None:
        self._opened_at = self._clock()
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None

    def _peer_left(self, why: str) -> None:
        self._drop(f"the other side left: {why}")

    def _violated(self, error: PeerProtocolError) -> None:
        self.session.forget()
        self._drop(str(error))

    def due_changed(self) -> None:
        """The one sweep of this link looks again."""
        self._sweep.changed()


class _AcceptedLink(Link):
    """The end that was dialled. It is over for good when the other side leaves or stays away for too long."""

    def __init__(self, name: str, session: Session, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        super().__init__(name, session, acceptor.clock)

    def due_changed(self) -> None:
        """The acceptor's sweep looks again."""
        self._acceptor.due_changed()

    def due_at(self, now: float) -> float:
        gone_at = math.inf if self._carrier is not None else self._lost_at + self._acceptor.kept_s
        return min(super().due_at(now), gone_at)

    def look(self, now: float) -> None:
        super().look(now)
        if self._carrier is None and now - self._lost_at >= self._acceptor.kept_s:
            self.end(BrokenByPeer(f"{self.name} did not come back for {self._acceptor.kept_s:g} s"))

    def forgive(self, now: float) -> None:
        super().forgive(now)
        self._lost_at = max(self._lost_at, now)


class Acceptor:
    """Takes carriers that arrive, resumes the sessions it knows, and keeps those that lost theirs for a while.

    Start `run` first (`await nursery.start(acceptor.run)`): the links' owners and the one sweep live in it.
    """

    def __init__(
        self,
        *,
        chance: Chance,
        clock: Callable[[], float] = trio.current_time,
        kept_s: float = SESSION_KEPT_S,
    ) -> None:
        self.clock = clock
        self.kept_s = kept_s
        self._chance = chance
        self._links: dict[str, _AcceptedLink] = {}
        self._swept: dict[_AcceptedLink, None] = {}  # in the order they came: a set's order differs between runs
        self._sweep = Sweep(self._swept, clock)
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all links until cancelled; an error of a link's owner ends it."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._sweep.run)
            task_status.started()

    def due_changed(self) -> None:
        """A link has something due earlier than before."""
        self._sweep.changed()

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """All links, those without a carrier too, by name."""
        return tuple(self._links[name].statistics() for name in sorted(self._links))

    async def serve(self, carrier: Carrier, *, name: str, on_link: Callable[[Link], Awaitable[None]]) -> None:
        """Run one arrived carrier until it ends.

        `on_link(link)` runs in `run`, once a session and not once a carrier, and the link is closed when it returns.
        A peer that comes as `name` without a session we know replaces the one of that name: its link breaks.
        """
        try:
            hello = await self._first_hello(carrier)
            while hello is not None:
                hello = await self._serve_session(carrier, hello, name, on_link)
        except BrokenByPeer:
            pass  # it left before it said who it is
        finally:
            await carrier.aclose()

    async def _first_hello(self, carrier: Carrier) -> Hello | None:
        with trio.move_on_after(HANDSHAKE_LIMIT_S):
            for _ in range(_EARLY_FRAMES):
                message = unpack_frame(await carrier.receive())
                if isinstance(message, Hello):
                    return message
        return None

    async def _serve_session(
        self, carrier: Carrier, hello: Hello, name: str, on_link: Callable[[Link], Awaitable[None]]
    ) -> Hello | None:
        if hello.protocol != PROTOCOL:
            raise PeerProtocolError(f"{name} speaks protocol {hello.protocol}; ours is {PROTOCOL}")
        link = self._links.get(name)
        if link is None or not link.session.knows(hello):
            link = self._new_link(name, on_link)
        session = link.session
        await link.carry(carrier, lambda: session.accept(hello, self.clock(), ordered=carrier.ordered))
        return link.greeted_again

    def _new_link(self, name: str, on_link: Callable[[Link], Awaitable[None]]) -> _AcceptedLink:
        if self._nursery is None:
            raise RuntimeError("start Acceptor.run before Acceptor.serve")
        earlier = self._links.get(name)
        if earlier is not None:
            earlier.end(BrokenByPeer(f"{name} came back without its session"))
        identity = self._chance.id("session")
        link = _AcceptedLink(name, Session(now=self.clock(), identity=identity), self)
        self._links[name] = link
        self._swept[link] = None
        self._nursery.start_soon(self._own, link, on_link)
        return link

    async def _own(self, link: _AcceptedLink, on_link: Callable[[Link], Awaitable[None]]) -> None:
        try:
            await on_link(link)
        except (BrokenByPeer, ClosedByUs):
            if link.ended_by is None:
                raise
        finally:
            self._forget(link)
            await link.aclose()

    def _forget(self, link: _AcceptedLink) -> None:
        self._swept.pop(link, None)
        if self._links.get(link.name) is link:
            del self._links[link.name]
