"""What a worker holds: containers, the attempts in them, and results that nobody has committed yet."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ...model.figures import HAND_BACK_AFTER_S, RESEND_ENVELOPES
from ...model.states import CONTAINER_TRANSITIONS, ContainerEvent, ContainerState, End
from ...wire.scheduling import ContainerEnded
from ...wire.work import AttemptKey, AttemptOrder, AttemptResult
from .credits import CreditWindow

REMEMBERED: Final = RESEND_ENVELOPES  # committed attempts that a container remembers, so that a repeat never runs again


class Stage(enum.StrEnum):
    """Where an attempt stands on its worker."""

    FETCHING = "fetching"  # its arguments are on their way from the object store
    WAITING = "waiting"  # for the container to load, or for word that it is still ours
    GIVEN = "given"  # to the container: it runs, or runs next
    ENDING = "ending"  # it runs, and its container's tree is being ended because of it
    STORING = "storing"  # it has run; its result is on its way to the object store
    FINISHED = "finished"


class Step(enum.StrEnum):
    """What can happen to an attempt."""

    FETCHED = "fetched"
    GIVEN = "given"
    TAKEN_BACK = "taken back"
    END_ASKED = "end asked"
    RETURNED_LARGE = "returned large"
    FINISHED = "finished"


STAGES: Final[dict[tuple[Stage, Step], Stage]] = {
    (Stage.FETCHING, Step.FETCHED): Stage.WAITING,
    (Stage.WAITING, Step.GIVEN): Stage.GIVEN,
    (Stage.GIVEN, Step.TAKEN_BACK): Stage.WAITING,
    (Stage.GIVEN, Step.END_ASKED): Stage.ENDING,
    (Stage.GIVEN, Step.RETURNED_LARGE): Stage.STORING,
    (Stage.ENDING, Step.RETURNED_LARGE): Stage.STORING,
} | {(stage, Step.FINISHED): Stage.FINISHED for stage in Stage if stage is not Stage.FINISHED}
_BEFORE_ITS_START: Final = frozenset({Stage.FETCHING, Stage.WAITING, Stage.GIVEN})


@dataclass
class Attempt:
    """One attempt. `wanted_end` is CANCELLED or TIMED_OUT once somebody asked; a `superseded` one has no result.

    An `unsure` one does not start before the control plane has said that it is still ours. One that `goes_back` runs
    elsewhere if it turns out not to have started.
    """

    order: AttemptOrder
    stage: Stage
    wanted_end: End | None = None
    superseded: bool = False
    unsure: bool = False
    goes_back: bool = False
    result: AttemptResult | None = None  # while it is being stored

    @property
    def key(self) -> AttemptKey:
        """Task and attempt."""
        return AttemptKey(self.order.task_id, self.order.attempt)

    def move(self, step: Step) -> None:
        """Go on by the table; an unknown pair is a KeyError."""
        self.stage = STAGES[self.stage, step]

    def take_back(self) -> None:
        """It was given, has not started, and may be ours no longer."""
        self.move(Step.TAKEN_BACK)
        self.unsure = True


@dataclass
class Held:
    """One container. `running` is what runs as far as is known, `since_s` the time from which that is so."""

    container_id: str
    stub_id: str
    start_by_s: float
    state: ContainerState = ContainerState.PLACED
    credit: CreditWindow = field(default_factory=CreditWindow)
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    running: AttemptKey | None = None
    since_s: float = 0.0
    stop_end: End | None = None
    stop_why: str = ""
    kill_at_s: float | None = None
    ended: ContainerEnded | None = None
    address: str = ""  # where the other ranks of its gang meet, once it is ready
    preempted: bool = False  # it makes room for others
    forgotten: bool = False  # its end is committed; it stays while results of it are being stored
    _committed: dict[AttemptKey, None] = field(default_factory=dict)

    def move(self, event: ContainerEvent) -> None:
        """Go on by the model's table; an unknown pair is a KeyError."""
        self.state = CONTAINER_TRANSITIONS[self.state, event]

    @property
    def window(self) -> int:
        """Its credit as the control plane should see it."""
        return self.credit.size if self.state is ContainerState.READY else 0

    @property
    def busy(self) -> bool:
        """Whether an attempt still needs the container itself."""
        return any(attempt.stage is not Stage.STORING for attempt in self.attempts.values())

    def given(self) -> list[AttemptKey]:
        """Attempts that are with the container, in order."""
        return [key for key, held in self.attempts.items() if held.stage in (Stage.GIVEN, Stage.ENDING)]

    def waiting(self) -> list[Attempt]:
        """Attempts that have their arguments and are not with the container."""
        return [attempt for attempt in self.attempts.values() if attempt.stage is Stage.WAITING]

    def doubt(self) -> None:
        """What has not been given to the container may be ours no longer."""
        for attempt in self.attempts.values():
            attempt.unsure |= attempt.stage in (Stage.FETCHING, Stage.WAITING)

    def trust(self, keys: tuple[AttemptKey, ...]) -> None:
        """These are still ours."""
        for key in keys:
            if key in self.attempts:
                self.attempts[key].unsure = False

    @property
    def doubtful(self) -> bool:
        """Whether any of its attempts waits for word that it is still ours."""
        return any(attempt.unsure for attempt in self.attempts.values())

    def follow(self, now_s: float) -> None:
        """The first of those that are with the container runs now, if it didn't before."""
        first = next((key for key, held in self.attempts.items() if held.stage in (Stage.GIVEN, Stage.ENDING)), None)
        if first != self.running:
            self.running, self.since_s = first, now_s

    def deadline_s(self) -> float | None:
        """When the running attempt has used up its time."""
        attempt = self.attempts.get(self.running) if self.running is not None else None
        if attempt is None or attempt.stage is not Stage.GIVEN or attempt.order.timeout_s <= 0:
            return None
        return self.since_s + attempt.order.timeout_s

    def behind(self) -> Iterator[Attempt]:
        """Attempts that have not started, as far as is known, and run only once the running one has ended."""
        for key, attempt in self.attempts.items():
            if key != self.running and not attempt.goes_back and attempt.stage in _BEFORE_ITS_START:
                yield attempt

    def hand_back_at_s(self) -> float | None:
        """When those behind the running attempt have waited long enough for it."""
        waits = self.running is not None and any(True for _ in self.behind())
        return self.since_s + HAND_BACK_AFTER_S if waits else None

    def remember(self, key: AttemptKey) -> None:
        """This attempt is over for good: a repeated order for it is ignored."""
        self._committed[key] = None
        if len(self._committed) > REMEMBERED:
            del self._committed[next(iter(self._committed))]

    def remembers(self, key: AttemptKey) -> bool:
        """Whether it is over for good."""
        return key in self._committed


class Results:
    """Results by container, until they are committed."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[AttemptKey, AttemptResult]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def keep(self, container_id: str, result: AttemptResult) -> None:
        """Keep a result."""
        self._kept.setdefault(container_id, {})[AttemptKey(result.task_id, result.attempt)] = result

    def forget(self, container_id: str, key: AttemptKey) -> None:
        """It is committed, or nobody wants it."""
        kept = self._kept.get(container_id, {})
        kept.pop(key, None)
        if not kept:
            self._kept.pop(container_id, None)

    def of(self, container_id: str) -> dict[AttemptKey, AttemptResult]:
        """What a container's attempts came to; do not change it."""
        return self._kept.get(container_id, {})

    def containers(self) -> tuple[str, ...]:
        """Containers with results."""
        return tuple(self._kept)
