"""The loop of an actor that decides, commits, then sends: memory never runs ahead of the truth.

A policy that has much to plan does so in slices: after each commit it takes what came in, and plans on.
Whatever came in during the last commit is the next group, so the loop needs no timer to form groups. A commit that
failed, or whose outcome is unknown, ends the actor; its supervisor starts it again and it reads the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import trio

from ..store.face import Store
from ..store.operations import Answer, Operation
from ..wire.letter import Letter
from ..wire.mailbox import Mailbox
from ..wire.message import Send
from ..wire.post import Post
from .counts import Counts

TICK_S = 0.25


class Planned(Protocol):
    """What a policy wants done: operations of one transaction."""

    @property
    def operations(self) -> Sequence[Operation]:
        """In order."""
        ...


P = TypeVar("P", bound=Planned)


class Policy(Protocol[P]):
    """The pure side. Times are Unix seconds."""

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in."""
        ...

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        ...

    def plan(self, now_s: float) -> P | None:
        """What all that was taken in since the last plan amounts to."""
        ...

    def settle(self, plan: P, answers: tuple[Answer, ...]) -> Sequence[Send]:
        """What to send, now that the plan is committed."""
        ...


class Surroundings:
    """What a committing actor is given: the post, the store, the epoch that it acts in, and a clock in Unix seconds.

    What it does is added to `counts`, which outlive the reign.
    """

    def __init__(
        self, *, post: Post, store: Store, epoch: int, clock: Callable[[], float], counts: Counts | None = None
    ) -> None:
        self.post = post
        self.store = store
        self.epoch = epoch
        self.clock = clock
        self.counts = Counts() if counts is None else counts


def _nothing(plan: object) -> None:
    """Most actors have no effects but messages."""


async def decide_commit_send(
    policy: Policy[P],
    mailbox: Mailbox,
    around: Surroundings,
    address: str,
    perform: Callable[[P], None] = _nothing,
    agree: Callable[[P], None] = _nothing,
) -> None:
    """Run until cancelled, or until a commit fails (`StoreUnavailable`, `OutcomeUnknown`, `EpochSuperseded`).

    `perform` does what else a plan asks for, after its commit. `agree` is called between its commit and its messages:
    who is answered finds that it is so.
    """
    next_tick_s = trio.current_time()
    plan: P | None = None
    while True:
        letters: tuple[Letter, ...] = ()
        if plan is not None and not mailbox.statistics().depth:  # there may be more to plan: nothing is waited for
            await trio.lowlevel.checkpoint()
        else:
            with trio.move_on_at(next_tick_s):
                letters = await mailbox.take_batch()
        for letter in letters:
            mailbox.handling(letter)
            policy.handle(letter, around.clock())
        mailbox.handling(None)
        if trio.current_time() >= next_tick_s:
            policy.tick(around.clock())
            next_tick_s = trio.current_time() + TICK_S
        plan = policy.plan(around.clock())
        if plan is not None:
            await _commit_and_send(policy, plan, around, address, agree)
            perform(plan)


async def _commit_and_send(
    policy: Policy[P], plan: P, around: Surroundings, address: str, agree: Callable[[P], None]
) -> None:
    answers: tuple[Answer, ...] = ()
    if plan.operations:
        began_s = trio.current_time()
        try:
            answers = await around.store.apply(*plan.operations, epoch=around.epoch)
        finally:
            around.counts.commits += 1
            around.counts.commit_s += trio.current_time() - began_s
    sends = policy.settle(plan, answers)
    agree(plan)
    await around.post.send_many(
        Letter(send.message, source=address, target=send.target, correlation=send.correlation) for send in sends
    )
