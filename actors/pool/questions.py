"""What a pool asks the guard, and what it was answered. A lost word is made up for: what is open is asked again."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from ...wire import scheduling
from ...wire.message import Send

ASKED_AGAIN_S: Final = 5.0


class Answered(enum.Enum):
    """What the guard said."""

    NOTHING = "nothing"
    HELD = "held"
    ADMITTED = "admitted"


class Question(msgspec.Struct, kw_only=True):
    """May so many workers be ordered? `key` is the gang, or the identity of the one worker."""

    key: str
    workers: int
    gang_id: str = ""
    answer: Answered = Answered.NOTHING
    why: str = ""
    asked_at_s: float


class Questions:
    """The questions of one pool that are open, in the order in which they were asked."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._open: dict[str, Question] = {}
        self.sends: list[Send] = [self._forget("")]

    def ask(self, key: str, workers: int, now_s: float, gang_id: str = "") -> Question:
        """Ask, unless it is asked already; the question as it stands. One that has changed is asked anew."""
        question = self._open.get(key)
        if question is not None and question.workers != workers:
            self.end(key)
            question = None
        if question is None:
            question = Question(key=key, workers=workers, gang_id=gang_id, asked_at_s=now_s)
            self._open[key] = question
            self._say(question)
        return question

    def ask_again(self, now_s: float) -> None:
        """What was not admitted yet is asked again, now and then."""
        for question in self._open.values():
            if question.answer is not Answered.ADMITTED and now_s - question.asked_at_s >= ASKED_AGAIN_S:
                question.asked_at_s = now_s
                self._say(question)

    def _say(self, question: Question) -> None:
        asked = scheduling.AskGuard(pool=self._pool, key=question.key, workers=question.workers)
        self.sends.append(Send("guard", asked))

    def admitted(self, key: str) -> None:
        """The guard lets it go. One that is asked no more is told so again, or it would be counted for ever."""
        question = self._open.get(key)
        if question is None:
            self.sends.append(self._forget(key))
        else:
            question.answer, question.why = Answered.ADMITTED, ""

    def held(self, key: str, why: str) -> None:
        """The guard holds it; a word that comes late changes nothing."""
        question = self._open.get(key)
        if question is not None and question.answer is not Answered.ADMITTED:
            question.answer, question.why = Answered.HELD, why

    def end(self, key: str) -> None:
        """A question is over: its workers are ordered, or are not wanted any more."""
        if self._open.pop(key, None) is not None:
            self.sends.append(self._forget(key))

    def _forget(self, key: str) -> Send:
        return Send("guard", scheduling.GuardForgets(pool=self._pool, key=key))

    def end_singles(self, keep: int) -> None:
        """So many questions for single workers are enough: the others end, those that were admitted last of all."""
        singles = self.singles()
        for question in singles[keep:]:
            self.end(question.key)

    def end_gangs(self, wanted: frozenset[str]) -> None:
        """Questions for gangs that are not wanted any more."""
        for question in tuple(self._open.values()):
            if question.gang_id and question.gang_id not in wanted:
                self.end(question.key)

    def singles(self) -> list[Question]:
        """The questions for single workers, those that were admitted first."""
        found = [question for question in self._open.values() if not question.gang_id]
        return sorted(found, key=lambda question: question.answer is not Answered.ADMITTED)

    def of_gang(self, gang_id: str) -> Question | None:
        """The question for a gang, if it is open."""
        return self._open.get(gang_id)

    def take_sends(self) -> list[Send]:
        """What is to be sent to the guard."""
        sends, self.sends = self.sends, []
        return sends
