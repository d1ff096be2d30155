"""A mailbox: what is said to one actor, in order, bounded, with a lane of its own for control.

Three kinds of senders have bounds of their own, so that none can starve another (docs/decisions/0002):

- edges (links, HTTP handlers) `await post` and wait while their slots are taken: backpressure ends at the carriers;
- actors of the same process `post_nowait` and never wait: to pass their larger bound is the receiver's failure;
- an answer uses the slot that its request reserved.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from ..errors import BrokenByPeer, Busy, MailboxOverflowed, WouldBlock
from ..model.figures import LOCAL_SLOTS, MAILBOX_SLOTS
from .control import StopAsked
from .letter import Letter
from .message import Message, WhenFull
from .quarantine import Quarantine

_RATE_WINDOW_S: Final = 1.0
_TAKES_A_CHECKPOINT: Final = 64  # an actor with much to do lets others run this often

_Key = tuple[type[Message], str, str]


class _Lane(enum.IntEnum):
    EDGE = 0
    LOCAL = 1
    ANSWER = 2


class _Slot:
    """A place in the queue; a coalescing message changes the letter in it."""

    __slots__ = ("key", "lane", "letter")

    def __init__(self, letter: Letter, lane: _Lane, key: _Key | None) -> None:
        self.letter = letter
        self.lane = lane
        self.key = key


class MailboxStatistics(msgspec.Struct, frozen=True):
    """A mailbox in numbers. Counts are since the mailbox was made, rates since somebody last looked."""

    depth: int
    slots: int
    peak_depth: int
    waiting_senders: int
    reserved: int
    received: int
    handled: int
    failed: int
    coalesced: int
    received_per_s: float
    handled_per_s: float
    quarantined: tuple[str, ...]


class Mailbox:
    """Where the letters of one actor wait. One task takes from it; anybody posts."""

    def __init__(
        self,
        name: str,
        slots: int = MAILBOX_SLOTS,
        *,
        local_slots: int = LOCAL_SLOTS,
        clock: Callable[[], float] = trio.current_time,
        quarantine: Quarantine | None = None,
    ) -> None:
        """A `quarantine` that is given remembers longer than this mailbox: the next of its address gets it, too."""
        self.name = name
        self.slots = slots
        self._room = (slots, local_slots, slots)
        self._taken_room = [0, 0, 0]
        self._queue: deque[_Slot] = deque()
        self._control: OrderedDict[_Key, Letter] = OrderedDict()
        self._coalescing: dict[_Key, _Slot] = {}
        self._reserved: set[str] = set()
        self._senders: OrderedDict[trio.lowlevel.Task, Letter] = OrderedDict()
        self._taker: trio.lowlevel.Task | None = None
        self._in_hand: tuple[Letter, ...] = ()
        self._quarantine = Quarantine() if quarantine is None else quarantine
        self._overflow = self._closed = ""
        self._received = self._handled = self._failed = self._coalesced = self._peak = 0
        self._clock = clock
        self._mark: tuple[float, int, int] | None = None
        self._rates = (0.0, 0.0)
        self._until_checkpoint = _TAKES_A_CHECKPOINT

    # --- Posting -----------------------------------------------------------------------------------------------

    async def post(self, letter: Letter) -> None:
        """For edges: put a letter in, and wait while the slots of edges are taken.

        Raises `WouldBlock` at once for a message class that is rejected when the mailbox is full, `Refused` for what is
        quarantined, and `BrokenByPeer` when the mailbox is closed, also while waiting.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._admit(letter, _Lane.EDGE):
            return
        if type(letter.message).when_full is WhenFull.REJECT:
            raise WouldBlock(f"the mailbox of {self.name} is full: {self.slots} letters wait in it")
        await self._wait_for_room(letter)

    def post_nowait(self, letter: Letter) -> None:
        """For actors of the same process: put a letter in without waiting.

        Raises `MailboxOverflowed` when even the larger bound is passed. That is the receiver's failure: its next `take`
        raises the same, so that it restarts and reads the truth. Raises `Refused` and `BrokenByPeer` like `post`.
        """
        if self._admit(letter, _Lane.LOCAL):
            return
        if type(letter.message).when_full is WhenFull.REJECT:
            raise WouldBlock(f"the mailbox of {self.name} is full: {self._room[_Lane.LOCAL]} letters wait in it")
        self._overflow = f"the mailbox of {self.name} overflowed: {self._room[_Lane.LOCAL]} letters waited in it"
        self._wake_taker()
        raise MailboxOverflowed(self._overflow)

    def post_control(self, letter: Letter) -> None:
        """Put a letter ahead of all others; one of the same type, source and key that still waits is replaced."""
        self._control[_key_of(letter)] = letter
        self._received += 1
        self._wake_taker()

    def reserve(self, request_id: str) -> None:
        """Keep a slot for the answer to a request that this mailbox's owner is about to send.

        Raises `WouldBlock` when as many requests are open as the mailbox has slots.
        """
        if len(self._reserved) + self._taken_room[_Lane.ANSWER] >= self.slots:
            raise WouldBlock(f"{self.name} has {self.slots} open requests already")
        self._reserved.add(request_id)

    def release(self, request_id: str) -> None:
        """Give back the slot of a request that gets no answer any more."""
        self._reserved.discard(request_id)

    def _admit(self, letter: Letter, lane: _Lane) -> bool:
        if self._closed:
            raise BrokenByPeer(self._closed)
        if self._quarantine.reasons:
            self._quarantine.refuse(letter)
        key = _key_of(letter) if type(letter.message).when_full is WhenFull.COALESCE else None
        if key is not None and (older := self._coalescing.get(key)) is not None:
            older.letter = letter
            self._received += 1
            self._coalesced += 1
            return True
        if letter.correlation and letter.correlation in self._reserved:
            self._reserved.discard(letter.correlation)
            lane = _Lane.ANSWER
        elif self._taken_room[lane] >= self._room[lane]:  # senders wait only while it is full
            return False
        self._append(letter, lane, key)
        return True

    def _append(self, letter: Letter, lane: _Lane, key: _Key | None) -> None:
        slot = _Slot(letter, lane, key)
        if key is not None:
            self._coalescing[key] = slot
        self._queue.append(slot)
        self._taken_room[lane] += 1
        self._received += 1
        if len(self._queue) > self._peak:
            self._peak = len(self._queue)
        if self._taker is not None:
            self._wake_taker()

    async def _wait_for_room(self, letter: Letter) -> None:
        task = trio.lowlevel.current_task()
        self._senders[task] = letter

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._senders[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._closed:
            raise BrokenByPeer(self._closed)

    def _let_senders_in(self) -> None:
        while self._senders and self._taken_room[_Lane.EDGE] < self.slots:
            task, letter = self._senders.popitem(last=False)
            key = _key_of(letter) if type(letter.message).when_full is WhenFull.COALESCE else None
            if key is not None and (older := self._coalescing.get(key)) is not None:
                older.letter = letter
                self._coalesced += 1
                self._received += 1
            else:
                self._append(letter, _Lane.EDGE, key)
            trio.lowlevel.reschedule(task)

    def _wake_taker(self) -> None:
        if self._taker is not None:
            trio.lowlevel.reschedule(self._taker)
            self._taker = None

    # --- Taking ------------------------------------------------------------------------------------------------

    async def take(self) -> Letter:
        """The next letter, control first; waits until there is one. What was taken before counts as handled.

        Raises `MailboxOverflowed` when other actors have said more than it holds, and `Busy` for a second taker.
        """
        self._done_with_hand()
        self._until_checkpoint -= 1
        if self._until_checkpoint:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._until_checkpoint = _TAKES_A_CHECKPOINT
            await trio.lowlevel.checkpoint()
        await self._wait_for_letter()
        return self._hand_out(1)[0]

    async def take_batch(self, limit: int = MAILBOX_SLOTS) -> tuple[Letter, ...]:
        """All letters that are ready, at most `limit`, control first; waits until there is one. Raises like `take`."""
        self._done_with_hand()
        await trio.lowlevel.checkpoint()
        await self._wait_for_letter()
        return self._hand_out(limit)

    def take_ready(self, limit: int = MAILBOX_SLOTS) -> tuple[Letter, ...]:
        """All letters that are ready, at most `limit`, control first; perhaps none. Never waits.

        They are in hand together with what `take` gave before, until the next `take` or `take_batch`.
        """
        before = self._in_hand
        more = self._hand_out(limit) if self._quarantine.singly == 0 else ()
        self._in_hand = before + more
        return more

    def handling(self, letter: Letter | None) -> None:
        """Of the letters in hand, this one is worked on now: if the actor crashes, it is the suspect. None: all are."""
        self._quarantine.suspect = letter

    async def _wait_for_letter(self) -> None:
        while not (self._queue or self._control or self._overflow):
            if self._taker is not None:
                raise Busy(f"two tasks take from the mailbox of {self.name}")
            self._taker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_taking)
        if self._overflow:
            raise MailboxOverflowed(self._overflow)

    def _stop_taking(self, _: object) -> trio.lowlevel.Abort:
        self._taker = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _hand_out(self, limit: int) -> tuple[Letter, ...]:
        if self._quarantine.singly:
            self._quarantine.singly -= 1
            limit = 1
        found: list[Letter] = []
        while self._control and len(found) < limit:
            found.append(self._control.popitem(last=False)[1])
        while self._queue and len(found) < limit:
            found.append(self._pop())
        if self._senders:
            self._let_senders_in()
        self._in_hand = tuple(found)
        return self._in_hand

    def _pop(self) -> Letter:
        slot = self._queue.popleft()
        self._taken_room[slot.lane] -= 1
        if slot.key is not None:
            del self._coalescing[slot.key]
        return slot.letter

    def _done_with_hand(self) -> None:
        self._handled += len(self._in_hand)
        self._in_hand = ()
        self._quarantine.suspect = None

    # --- For the supervisor ------------------------------------------------------------------------------------

    def finished(self) -> None:
        """The owner returned by itself: what it had in hand is handled."""
        self._done_with_hand()

    def end_life(self, why: str, *, suspicious: bool, keep: bool) -> tuple[tuple[Letter, ...], tuple[Letter, ...]]:
        """The owner's life ended: returns the letters it had in hand, and those that are discarded (none with `keep`).

        `suspicious`: it crashed, and a letter may be the cause. The suspect among those in hand is counted; a key that
        crashed its handler three times is quarantined. With several letters in hand nobody knows which one it was, so
        that for a while they are handed out one at a time. Control letters stay, but for `StopAsked`.
        """
        in_hand = self._in_hand
        self._failed += len(in_hand)
        if suspicious:
            self._quarantine.count(in_hand, why)
            self._quarantine.singly = self.slots
        self._in_hand = ()
        self._overflow = ""
        for key in [key for key in self._control if key[0] is StopAsked]:
            del self._control[key]
        return in_hand, () if keep else self._discard()

    def close(self, why: str) -> tuple[Letter, ...]:
        """Nobody takes any more: returns the letters left over, and wakes waiting senders with `BrokenByPeer`."""
        self._closed = why
        left = self._in_hand + self._discard()
        self._in_hand = ()
        while self._senders:
            trio.lowlevel.reschedule(self._senders.popitem(last=False)[0])
        return left

    def _discard(self) -> tuple[Letter, ...]:
        left = tuple(self._pop() for _ in range(len(self._queue)))
        if not self._closed:
            self._let_senders_in()
        return left

    def statistics(self) -> MailboxStatistics:
        """The mailbox in numbers, for metrics and `inspect`."""
        self._measure()
        return MailboxStatistics(
            depth=len(self._queue) + len(self._control),
            slots=self.slots,
            peak_depth=self._peak,
            waiting_senders=len(self._senders),
            reserved=len(self._reserved),
            received=self._received,
            handled=self._handled,
            failed=self._failed,
            coalesced=self._coalesced,
            received_per_s=self._rates[0],
            handled_per_s=self._rates[1],
            quarantined=tuple(self._quarantine.reasons.values()),
        )

    def _measure(self) -> None:
        now = self._clock()
        if self._mark is None:
            self._mark = (now, self._received, self._handled)
        since, received, handled = self._mark
        if now - since < _RATE_WINDOW_S:
            return
        self._rates = ((self._received - received) / (now - since), (self._handled - handled) / (now - since))
        self._mark = (now, self._received, self._handled)


def _key_of(letter: Letter) -> _Key:
    return type(letter.message), letter.source, letter.message.coalesce_key()


async def serve(mailbox: Mailbox, handle: Callable[[Letter], Awaitable[None]]) -> None:
    """An actor's loop: handle letter after letter until `StopAsked`."""
    while not isinstance((letter := await mailbox.take()).message, StopAsked):
        await handle(letter)
