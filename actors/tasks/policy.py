"""The whole decision about calls, pure: letters in, one plan out, which is committed before any of it is sent.

The actor feeds every letter that is ready through `handle`, asks for one `plan`, commits its operations as one
transaction, and gives the answers to `settle`, which says what to send. Starts are decided last, so that within a
group a cancel always comes before a start.

One ledger holds the state. Callers, workers and containers each have a part that changes it; all that they decide
goes into one group, which becomes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...errors import Refused
from ...model.feasibility import PoolOffer
from ...model.queues import Queueing
from ...model.states import TaskState
from ...store import operations as ops
from ...wire.letter import Letter
from ...wire.message import Failure, Send
from ...wire.operating import TermsChanged
from ..applied import applied_to
from ..counts import Counts
from .callers import CallersSide
from .containers import ContainersSide
from .explaining import progress
from .group import Group, Plan
from .ledger import Ledger, Stub
from .recovery import Recovery
from .settling import settle
from .workers import WorkersSide


class TasksPolicy:
    """Owns every call that has not ended. `new_id(kind)` makes identities; times are Unix seconds.

    What was committed is added to `counts`.
    """

    def __init__(
        self,
        new_id: Callable[[str], str],
        counts: Counts | None = None,
        terms_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._terms_changed = terms_changed
        self._counts = Counts() if counts is None else counts
        self.ledger = Ledger()
        self._group = Group()
        self._workers = WorkersSide(self.ledger, self._group)
        self._callers = CallersSide(self.ledger, self._group, self._workers)
        self._containers = ContainersSide(self.ledger, self._group, self._workers, new_id)
        self._recovery = Recovery(self.ledger, self._workers)

    def offer(self, offers: tuple[PoolOffer, ...], queueing: Queueing | None = None) -> None:
        """What pools have, or ever had, and who may have how much: functions that could never run are refused."""
        self.ledger.offers = offers
        self.ledger.queueing = queueing or self.ledger.queueing

    def load(
        self,
        stubs: Iterable[ops.StubRow],
        containers: Iterable[ops.ContainerRow],
        tasks: Iterable[ops.TaskRow],
        now_s: float,
    ) -> None:
        """Begin from the store, in as many pages as it takes; stubs and containers come before their tasks."""
        self._recovery.load(stubs, containers, tasks, now_s)

    def lost(self, tasks: Iterable[ops.TaskRow]) -> tuple[str, ...]:
        """Containers whose rows `load` wants before these tasks, although they have ended."""
        return self._recovery.lost(tasks)

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in. Refusals become answers; nothing is raised for what a sender may get wrong.

        What a letter may say is decided by who sent it: the gateway vouches for `source`.
        """
        side = letter.source.partition("/")[0]
        try:
            if side == "worker":
                self._workers.handle(letter, now_s)
            elif side in ("pool", "scheduler", "clusters") and isinstance(letter.message, TermsChanged):
                self._terms_changed()
            elif side == "scheduler":
                self._containers.handle(letter, now_s)
            else:
                self._callers.handle(letter, now_s)
        except Refused as refused:
            if side not in ("worker", "scheduler"):  # they never ask: an answer would only puzzle them
                self._group.refuse(letter, Failure.of(refused))

    def tick(self, now_s: float) -> None:
        """What only time brings: waiting limits, containers that stand idle, blocked stubs, news for callers."""
        self._group.flush = True
        pressed = any(stub.why_held and stub.waiting for stub in self.ledger.stubs.values())
        for stub in self.ledger.stubs.values():
            self._containers.pass_time(stub, now_s, pressed)
            if stub.progress_due:
                self._tell_progress(stub)

    def _tell_progress(self, stub: Stub) -> None:
        stub.progress_due = False
        message = progress(stub)
        for watcher in stub.watching:
            self._group.send(watcher, message)

    def plan(self, now_s: float) -> Plan | None:
        """All that the letters since the last plan amount to, or None when there is nothing to do."""
        for stub_id in self.ledger.touched:
            stub = self.ledger.stubs[stub_id]
            self._containers.release_yielded(stub)
            self._containers.ask(stub, now_s)
            self._containers.deliver(stub, now_s)
        self.ledger.touched.clear()
        return self._group.take(self._worker_of, self._workspace_of, now_s)

    def _worker_of(self, container_id: str) -> str:
        return self.ledger.containers[container_id].worker_id

    def _workspace_of(self, stub_id: str) -> str:
        return self.ledger.stubs[stub_id].workspace_id

    def settle(self, plan: Plan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed. Calls that the store knew before are answered, not run again.

        Raises `OutcomeUnknown` when the truth is not what memory took it for: then it is to be read again.
        """
        sends = settle(plan, answers, self.ledger, self._group, self._workers)
        self._count(plan, answers)
        return sends

    def _count(self, plan: Plan, answers: tuple[ops.Answer, ...]) -> None:
        self._counts.tasks_accepted += sum(len(applied_to(answers[index])) for index, _ in plan.accepts)
        for operation in plan.operations:
            if isinstance(operation, ops.EndAttempts):
                ended = [end.state for end in operation.ends if end.state.terminal]
                self._counts.tasks_finished += len(ended)
                self._counts.tasks_failed += len(ended) - ended.count(TaskState.COMPLETE)
