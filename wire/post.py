"""The post: who is where, and how a letter gets there.

Two ways in, one for each kind of sender (docs/decisions/0002):

- actors `send`: a mailbox of this process takes the letter at once, or has overflowed, and that is its owner's failure;
  only for the window of a link they wait, and the far end of a link reads without ever waiting for an actor of ours;
- edges (a link's reader, an HTTP handler, the SDK) `deliver`: they wait while the mailbox is full.

What can't be delivered goes to the dead letters, and its asker hears at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
import trio

from ..errors import BrokenByPeer, ClosedByUs, DeadlinePassed, LeversError, MailboxOverflowed, Refused, WouldBlock
from ..model.ids import Chance
from .client import RequestRefused
from .codec import Envelope
from .dead_letters import Cause, DeadLetters
from .letter import Letter, answer, open_envelope, seal
from .mailbox import Mailbox
from .message import Failure, Message
from .quarantine import QUARANTINED

ROUTES_MAX: Final = 65_536  # learned addresses; beyond, the one that was silent longest is forgotten
LATE_REMEMBERED: Final = 1_000  # asks that nobody waits for any more, so that a late answer is told from a stray one
_CODES: Final = {  # those of errors.py where there is one: whoever knows these tries again
    Cause.UNDELIVERABLE: BrokenByPeer.code,
    Cause.LATE: DeadlinePassed.code,
    Cause.REJECTED: WouldBlock.code,
    Cause.OVERFLOWED: WouldBlock.code,
    Cause.QUARANTINED: QUARANTINED,
    Cause.CRASHED: "crashed",
    Cause.DISCARDED: "crashed",
    Cause.BROKEN: BrokenByPeer.code,
}
_CAUSES: Final = (
    (MailboxOverflowed, Cause.OVERFLOWED),
    (WouldBlock, Cause.REJECTED),
    (BrokenByPeer, Cause.BROKEN),
    (ClosedByUs, Cause.BROKEN),
)


class Outgoing(Protocol):
    """What the post needs of a link."""

    async def send(self, *envelopes: Envelope) -> None:
        """Hand envelopes over; wait while the window is full. Raises `BrokenByPeer` once it is closed for good."""
        ...

    def send_nowait(self, *envelopes: Envelope) -> None:
        """Hand envelopes over, or raise `WouldBlock`."""
        ...


class _Ask:
    """A question on its way."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Letter | None = None


class Post:
    """Delivers letters to mailboxes of this process and to links, by address."""

    def __init__(
        self, *, chance: Chance, dead_letters: DeadLetters | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.dead_letters = dead_letters or DeadLetters()
        self._chance = chance
        self._clock = clock
        self._mailboxes: dict[str, Mailbox] = {}
        self._routes: OrderedDict[str, Outgoing] = OrderedDict()
        self._asks: dict[str, _Ask] = {}
        self._late: OrderedDict[str, None] = OrderedDict()

    # --- Who is where ------------------------------------------------------------------------------------------

    def register(self, address: str, mailbox: Mailbox) -> None:
        """A mailbox of this process has this address from now on; it goes before any link."""
        self._mailboxes[address] = mailbox

    def unregister(self, address: str, mailbox: Mailbox) -> None:
        """The mailbox has this address no more; a mailbox that took it over meanwhile keeps it."""
        if self._mailboxes.get(address) is mailbox:
            del self._mailboxes[address]

    def learn(self, address: str, link: Outgoing) -> None:
        """Letters to this address leave by this link from now on: the newest link of a peer counts."""
        self._routes[address] = link
        self._routes.move_to_end(address)
        if len(self._routes) > ROUTES_MAX:
            self._routes.popitem(last=False)

    def forget(self, link: Outgoing) -> tuple[str, ...]:
        """Nothing leaves by this link any more; returns the addresses that it had."""
        gone = tuple(address for address, by in self._routes.items() if by is link)
        for address in gone:
            del self._routes[address]
        return gone

    def forget_address(self, address: str) -> None:
        """The peer at this address is gone, its link stays."""
        self._routes.pop(address, None)

    def link_to(self, address: str) -> Outgoing | None:
        """The link by which letters to this address leave: a relay forwards sealed envelopes by it."""
        return self._routes.get(address)

    def mailbox_of(self, address: str) -> Mailbox | None:
        """The mailbox of this process at this address."""
        return self._mailboxes.get(address)

    # --- For actors --------------------------------------------------------------------------------------------

    async def send(self, letter: Letter) -> None:
        """Send one letter; waits for the window of a link, never for a mailbox. See `send_many`."""
        await self.send_many((letter,))

    async def send_many(self, letters: Iterable[Letter]) -> None:
        """Send letters, those of one link as one batch. Nothing is raised for what can't be delivered: see `bounce`."""
        by_link: dict[int, tuple[Outgoing, list[Letter]]] = {}
        for letter in letters:
            link = self._place_nowait(letter)
            if link is not None:
                by_link.setdefault(id(link), (link, []))[1].append(letter)
        for link, batch in by_link.values():
            await self._send_by(link, batch)

    def send_nowait(self, letter: Letter) -> None:
        """Send one letter without waiting. Raises `WouldBlock` when the window of the link to its target is full."""
        link = self._place_nowait(letter)
        if link is None:
            return
        try:
            link.send_nowait(seal(letter, self._chance))
        except WouldBlock:
            raise
        except LeversError as error:
            self._bounce_for(letter, error)

    async def reply(self, letter: Letter, message: Message) -> None:
        """Answer a letter."""
        await self.send(answer(letter, message))

    def request(self, letter: Letter) -> str:
        """Send without waiting, and keep a slot for the answer in the mailbox at `letter.source`; returns its id.

        The answer arrives there as a letter whose `correlation` is that id. Raises `WouldBlock` when the mailbox has as
        many open requests as slots, or the link's window is full.
        """
        asked = self._with_id(letter, "q", 0.0)
        mailbox = self._mailboxes[letter.source]
        mailbox.reserve(asked.id)
        try:
            self.send_nowait(asked)
        except WouldBlock:
            mailbox.release(asked.id)
            raise
        return asked.id

    def _place_nowait(self, letter: Letter) -> Outgoing | None:
        """Put a letter where it belongs in this process, or return the link by which it leaves."""
        if self._takes_as_answer(letter):
            return None
        mailbox = self._mailboxes.get(letter.target)
        if mailbox is None:
            return self._route(letter)
        try:
            mailbox.post_nowait(letter)
        except LeversError as error:
            self._bounce_for(letter, error)
        return None

    # --- For edges ---------------------------------------------------------------------------------------------

    async def deliver(self, letter: Letter) -> None:
        """Deliver what arrived at an edge; waits while its mailbox or link is full. See `bounce` for what can't be."""
        if self._takes_as_answer(letter):
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        mailbox = self._mailboxes.get(letter.target)
        if mailbox is None:
            link = self._route(letter)
            if link is not None:
                await self._send_by(link, [letter])
            return
        try:
            await mailbox.post(letter)
        except LeversError as error:
            self._bounce_for(letter, error)

    async def receive(self, link: Outgoing, envelopes: Iterable[Envelope]) -> None:
        """Deliver what a link brought, in order, and learn that its senders are reached by that link.

        Raises `PeerProtocolError` for a payload that is no message.
        """
        for envelope in envelopes:
            if self._routes.get(envelope.source) is not link:
                self.learn(envelope.source, link)
            await self.deliver(open_envelope(envelope))

    async def ask(self, letter: Letter, deadline_s: float) -> Letter:
        """Send a question and wait for its answer, at most `deadline_s` seconds. For edges only: no actor waits so.

        `letter.source` must be an address that leads back to this process. The answer may be a `RequestRefused`. Raises
        `DeadlinePassed`; what comes later is a dead letter.
        """
        asked = self._with_id(letter, "ask", self._clock() + deadline_s)
        ask = self._asks[asked.id] = _Ask()
        try:
            with trio.move_on_after(deadline_s):
                await self.deliver(asked)
                await ask.answered.wait()
        finally:
            del self._asks[asked.id]
            if ask.answer is None:
                self._remember_late(asked.id)
        if ask.answer is None:
            raise DeadlinePassed(
                f"{asked.target} did not answer {type(asked.message).__name__} within {deadline_s:g} s"
            )
        return ask.answer

    def _takes_as_answer(self, letter: Letter) -> bool:
        if not letter.correlation:
            return False
        ask = self._asks.get(letter.correlation)
        if ask is not None:
            ask.answer = letter
            ask.answered.set()
            return True
        if letter.correlation not in self._late:
            return False
        self.dead_letters.add(letter, Cause.LATE)
        return True

    def _remember_late(self, ask_id: str) -> None:
        self._late[ask_id] = None
        if len(self._late) > LATE_REMEMBERED:
            self._late.popitem(last=False)

    # --- What can't be delivered -------------------------------------------------------------------------------

    def bounce(self, letter: Letter, cause: Cause, why: str = "") -> None:
        """A letter to the dead letters; whoever waits for its answer gets a `RequestRefused` at once, to try again."""
        what = f"{type(letter.message).__name__} was not carried out."
        self._bounce(letter, cause, Failure(_CODES[cause], what, why or cause.value, "Send it again."))

    def _bounce_for(self, letter: Letter, error: LeversError) -> None:
        if isinstance(error, Refused):
            cause = Cause.QUARANTINED if error.code == QUARANTINED else Cause.REJECTED
            self._bounce(letter, cause, Failure(error.code, error.what, error.why, error.fix))
            return
        cause = next((cause for kind, cause in _CAUSES if isinstance(error, kind)), Cause.UNDELIVERABLE)
        self.bounce(letter, cause, str(error))

    def _bounce(self, letter: Letter, cause: Cause, failure: Failure) -> None:
        self.dead_letters.add(letter, cause, failure.why or failure.what)
        if not letter.expects_answer:
            return
        why = failure.why[:1].upper() + failure.why[1:] + "." * (failure.why[-1:].isalnum())
        reply = answer(letter, RequestRefused(failure=msgspec.structs.replace(failure, why=why)))
        try:
            self.send_nowait(reply)
        except WouldBlock as error:
            self.dead_letters.add(reply, Cause.BROKEN, str(error))

    def _route(self, letter: Letter) -> Outgoing | None:
        link = self._routes.get(letter.target)
        if link is None:
            self.bounce(letter, Cause.UNDELIVERABLE)
        return link

    async def _send_by(self, link: Outgoing, letters: list[Letter]) -> None:
        try:
            await link.send(*(seal(letter, self._chance) for letter in letters))
        except Refused as error:  # one of them is too large, and none was sent
            if len(letters) == 1:
                self._bounce_for(letters[0], error)
                return
            for letter in letters:
                await self._send_by(link, [letter])
        except LeversError as error:
            for letter in letters:
                self._bounce_for(letter, error)

    def _with_id(self, letter: Letter, kind: str, deadline_s: float) -> Letter:
        return Letter(
            letter.message,
            source=letter.source,
            target=letter.target,
            workspace=letter.workspace,
            kind=letter.kind,
            id=self._chance.id(kind),
            deadline_s=deadline_s,
            trace=letter.trace,
        )
