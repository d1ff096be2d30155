"""Why a pool orders no worker that is wanted, as data and in words: told when it changes."""

from __future__ import annotations

from ...model.reasons import HoldKind, Reason
from ...model.sentences import plural
from ...wire import scheduling
from ...wire.message import Send
from .questions import Answered, Question, Questions
from .settings import PoolSettings
from .wishes import Needs


class Holds:
    """What the scheduler was told last, for all that is wanted ("") and for each gang that is held."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.waits = ""  # why workers do not start in its cluster
        self._told: dict[str, Reason] = {}

    @property
    def sentences(self) -> tuple[str, ...]:
        """What holds it now, in words; each once."""
        return tuple(dict.fromkeys(reason.detail for reason in self._told.values()))

    def told(self, needs: Needs, questions: Questions, failures: int, pending: int) -> list[Send]:
        """What is to be told now; `failures` of its last workers make it wait, 0: they do not."""
        found = self._found(needs, questions, failures, pending)
        sends = [self._held(gang_id, reason) for gang_id, reason in found.items() if self._told.get(gang_id) != reason]
        sends += [self._held(gang_id, None) for gang_id in self._told if gang_id not in found]
        self._told = found
        return sends

    def _found(self, needs: Needs, questions: Questions, failures: int, pending: int) -> dict[str, Reason]:
        if failures:  # whatever is wanted: who asked another pool because of it must not ask again meanwhile
            return {"": self._backs_off(failures)}
        found: dict[str, Reason] = {}
        if self.waits and (pending or needs.singles or needs.gangs or needs.beyond):
            found[""] = self._reason(HoldKind.CLUSTER, f"{self.waits.rstrip('.')}.", machines_only=True)
        else:
            self._found_of_all(found, needs, questions)
        for need in needs.gangs:
            if need.hold:
                found[need.gang_id] = self._reason(HoldKind.MAXIMUM, f"{need.hold}.", need.wanted, machines_only=True)
            elif (question := questions.of_gang(need.gang_id)) is not None and question.answer is Answered.HELD:
                found[need.gang_id] = self._guarded(question)
        return found

    def _found_of_all(self, found: dict[str, Reason], needs: Needs, questions: Questions) -> None:
        """What holds whatever is wanted."""
        held = next((one for one in questions.singles() if one.answer is Answered.HELD), None)
        if held is not None:
            found[""] = self._guarded(held)
        elif needs.beyond and not needs.singles:  # else some of it is on its way, and others need not be asked yet
            most = self.settings.max_workers
            found[""] = self._reason(HoldKind.MAXIMUM, self._full(), most, machines_only=True)

    def _full(self) -> str:
        nodes = len(self.settings.nodes)
        if nodes and nodes <= self.settings.max_workers:
            return f"{f'none of its {nodes} nodes can' if nodes > 1 else 'its node cannot'} take another worker."
        most = self.settings.max_workers
        return f"it is at its maximum of {most} {plural('worker', most)}."

    def _backs_off(self, failures: int) -> Reason:
        detail = f"its last {failures} workers ended early; the next one starts in a moment."
        return self._reason(HoldKind.BACK_OFF, detail)

    def _guarded(self, question: Question) -> Reason:
        return self._reason(HoldKind.GUARD, f"the provisioning guard holds it: {question.why}.", question.workers)

    def _reason(self, kind: HoldKind, detail: str, wanted: int = 0, *, machines_only: bool = False) -> Reason:
        return Reason(kind=kind, pool=self.settings.name, wanted=wanted, detail=detail, machines_only=machines_only)

    def _held(self, gang_id: str, reason: Reason | None) -> Send:
        held = scheduling.PoolHeld(
            pool=self.settings.name,
            why="" if reason is None else reason.detail,
            backs_off=reason is not None and reason.kind is not HoldKind.MAXIMUM,
            reason=reason,
            gang_id=gang_id,
        )
        return Send("scheduler", held)
