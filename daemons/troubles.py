"""A child of the root that does not come up is told where a person looks, with its own last words; so is its return."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio

from ..wire.control import ChildStanding
from .lines import without_colours

LOOK_EVERY_S: Final = 1.0
STEADY_S: Final = 5.0  # one that has lived so long is up
FAILURES: Final = 2  # in a row: one alone may be an accident, and the next life mends it
_WORDS_KEPT: Final = 3
_WORDS_MAX: Final = 400
_OF_POSTGRES: Final = re.compile(r"\b(?:FATAL|PANIC|ERROR|DETAIL|HINT): +(.*)")
_WHICH_ERROR: Final = re.compile(r"^\w+: (?:\S+: (?=it ))?")  # `ChildFailed: PROGRAM: it exited with 1`
_RUNS_AGAIN: Final = "{} runs again."
_FAILS: Final = "{} does not stay up ({} tries): {} Mend that: it is started again by itself, at the latest after 30 s."


class Troubles:
    """What was said last of each child. `look` judges how they stand, in the order in which they are started."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}

    def heard(self, name: str, line: str) -> None:
        """A line of a child."""
        self._of(name).hear(line)

    def look(self, children: Iterable[ChildStanding], now_s: float) -> tuple[str, ...]:
        """The sentences to say now. Of several that fail only the first is told: the others wait for it."""
        said: list[str] = []
        first = True
        for child in children:
            followed = self._of(child.path.rpartition("/")[2])
            failing = followed.judge(child, now_s)
            if failing and first and not followed.told:
                said.append(followed.sentence(child))
            elif not failing and followed.told:
                followed.told = False
                said.append(_RUNS_AGAIN.format(followed.name))
            first = first and not failing
        return tuple(said)

    def _of(self, name: str) -> _Followed:
        return self._followed.setdefault(name, _Followed(name=name))


class _Followed(msgspec.Struct):
    """A child: how often it had been started when it was up last, and what it has said in its last life."""

    name: str
    restarts: int = 0
    changed_at_s: float = 0.0
    restarts_when_up: int = 0
    told: bool = False
    words: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=_WORDS_KEPT))

    def hear(self, line: str) -> None:
        line = without_colours(line).strip()
        if self.name == "postgres":
            line = " ".join(_OF_POSTGRES.findall(line))
        if line and not line.startswith("{") and line[:_WORDS_MAX] not in self.words:
            self.words.append(line[:_WORDS_MAX])

    def judge(self, child: ChildStanding, now_s: float) -> bool:
        """Whether it fails again and again: until it has lived for a while."""
        if child.restarts != self.restarts:
            self.restarts, self.changed_at_s = child.restarts, now_s
        elif child.state == "running" and now_s - self.changed_at_s >= STEADY_S:
            self.restarts_when_up = self.restarts
            self.words.clear()
        return self.restarts - self.restarts_when_up >= FAILURES

    def sentence(self, child: ChildStanding) -> str:
        self.told = True
        why = "; ".join(self.words) or _WHICH_ERROR.sub("", child.last_failure)
        return _FAILS.format(self.name, self.restarts - self.restarts_when_up, why if why[-1:] in ".?!" else f"{why}.")


async def tell_troubles(
    troubles: Troubles,
    inspect: Callable[[], Iterable[ChildStanding]],
    say: Callable[[str], None],
    clock: Callable[[], float] = trio.current_time,
) -> None:
    """Look each second until cancelled."""
    while True:
        for sentence in troubles.look(inspect(), clock()):
            say(sentence)
        await trio.sleep(LOOK_EVERY_S)
