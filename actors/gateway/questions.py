"""Questions that HTTP handlers ask actors of the control plane, with a deadline."""

from __future__ import annotations

from typing import Final

from ...errors import Refused
from ...model.tokens import Principal
from ...wire.client import RequestRefused
from ...wire.letter import Letter
from ...wire.message import Message
from ...wire.post import Outgoing, Post

ANSWER_WITHIN_S: Final = 10.0
OPEN_QUESTIONS: Final = 1024
BUSY: Final = "busy"
ASKED: Final = ("tasks", "scheduler", "pools", "clusters", "leader", "supervisor")


class Questions:
    """`leader` leads to the control plane; `post` takes the answers that come back to `address`."""

    def __init__(self, address: str, post: Post, leader: Outgoing) -> None:
        self._address = address
        self._post = post
        self._open = 0
        for target in ASKED:
            post.learn(target, leader)

    async def ask(self, message: Message, principal: Principal) -> Message:
        """The answer of the message's declared receiver.

        Raises `DeadlinePassed` without one, and `Refused` for a refusal or when too many questions are open.
        """
        if self._open >= OPEN_QUESTIONS:
            raise Refused("The gateway is busy.", f"{OPEN_QUESTIONS} questions are open.", "Try again soon.", BUSY)
        letter = Letter(
            message,
            source=self._address,
            target=message.receiver,
            workspace=principal.workspace_id,
            kind=principal.kind,
        )
        self._open += 1
        try:
            answer = (await self._post.ask(letter, ANSWER_WITHIN_S)).message
        finally:
            self._open -= 1
        if isinstance(answer, RequestRefused):
            failure = answer.failure
            raise Refused(failure.what, failure.why, failure.fix, failure.code)
        return answer
