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
    """May so many workers be ordered? For one alone `key` is its identity, for a gang's the gang and a number."""

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
        self._gangs: dict[str, str] = {}  # the key of each gang's question
        self._asked = 0
        self.sends: list[Send] = [self._forget("")]

    def ask(self, worker_id: str, now_s: float) -> None:
        """May this one worker be ordered?"""
        self._open_question(Question(key=worker_id, workers=1, asked_at_s=now_s))

    def ask_for_gang(self, gang_id: str, workers: int, now_s: float) -> None:
        """May so many workers of a gang be ordered? Asked once; for another number it is another question.

        Each has a key of its own: an answer that is late is never taken for that to a later question.
        """
        question = self.of_gang(gang_id)
        if question is not None and question.workers == workers:
            return
        self.end_gang(gang_id)
        self._asked += 1
        key = f"{gang_id}/{self._asked}"
        self._open_question(Question(key=key, workers=workers, gang_id=gang_id, asked_at_s=now_s))

    def _open_question(self, question: Question) -> None:
        self._open[question.key] = question
        if question.gang_id:
            self._gangs[question.gang_id] = question.key
        self._say(question)

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
        question = self._open.pop(key, None)
        if question is not None:
            self._gangs.pop(question.gang_id, None)
            self.sends.append(self._forget(key))

    def end_gang(self, gang_id: str) -> None:
        """The question for a gang is over, if there is one."""
        self.end(self._gangs.get(gang_id, ""))

    def _forget(self, key: str) -> Send:
        return Send("guard", scheduling.GuardForgets(pool=self._pool, key=key))

    def end_singles(self, keep: int) -> None:
        """So many questions for single workers are enough: the others end, those that were admitted last of all."""
        singles = self.singles()
        for question in singles[keep:]:
            self.end(question.key)

    def end_gangs(self, wanted: frozenset[str]) -> None:
        """Questions for gangs that are not wanted any more."""
        for gang_id in tuple(self._gangs):
            if gang_id not in wanted:
                self.end_gang(gang_id)

    def singles(self) -> list[Question]:
        """The questions for single workers, those that were admitted first."""
        found = [question for question in self._open.values() if not question.gang_id]
        return sorted(found, key=lambda question: question.answer is not Answered.ADMITTED)

    def of_gang(self, gang_id: str) -> Question | None:
        """The question for a gang, if it is open."""
        return self._open.get(self._gangs.get(gang_id, ""))

    def take_sends(self) -> list[Send]:
        """What is to be sent to the guard."""
        sends, self.sends = self.sends, []
        return sends
