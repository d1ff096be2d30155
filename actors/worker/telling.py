"""What a worker tells: results until they are committed, what its containers hold, and its whole truth. Pure."""

from __future__ import annotations

from ...wire import work
from ...wire.message import Message
from ...wire.work import AttemptResult
from .events import Decision, Send
from .fence import Fence
from .ledger import Held, Results
from .outcomes import parts
from .reports import Identity, whole_truth


class Telling:
    """Everything that the policy decides, in order, and among it what it says. A worker that leaves grants no credit.

    Results that came up within one event leave together, at its end.
    """

    def __init__(self, identity: Identity, containers: dict[str, Held], results: Results, fence: Fence) -> None:
        self.decisions: list[Decision] = []
        self.leaves = False
        self._identity = identity
        self._containers = containers
        self._results = results
        self._fence = fence
        self._due: dict[str, list[AttemptResult]] = {}

    def take(self) -> list[Decision]:
        """What was decided since the last time."""
        decisions, self.decisions = self.decisions, []
        return decisions

    def send(self, message: Message) -> None:
        """Say this."""
        self.decisions.append(Send(message))

    def tell(self, container_id: str, result: AttemptResult) -> None:
        """Say this result with the others of this event."""
        self._due.setdefault(container_id, []).append(result)

    def tell_results(self) -> None:
        """Say the results that are due."""
        due, self._due = self._due, {}
        for container_id, results in due.items():
            self._send_results(container_id, tuple(results))

    def _send_results(self, container_id: str, results: tuple[AttemptResult, ...]) -> None:
        held = self._containers.get(container_id)
        window = 0 if held is None else self._window(held)
        for part in parts(results):
            self.send(work.AttemptsFinished(container_id=container_id, results=part, window=window))

    def _window(self, held: Held) -> int:
        return 0 if self.leaves else held.window

    def tell_everything(self) -> None:
        """Results and ends first: then the report finds their places taken, and takes nothing for lost."""
        self._due.clear()
        for container_id in self._results.containers():
            self._send_results(container_id, tuple(self._results.of(container_id).values()))
        for held in self._containers.values():
            if held.ended is not None:
                self.send(held.ended)
        self.report()
        for held in self._containers.values():
            if held.ended is None:
                self.tell_held(held)

    def tell_held(self, held: Held) -> None:
        """Say which attempts a container holds; with a question where it is not known whether they are still ours."""
        keys = (*held.attempts, *self._results.of(held.container_id))
        question = self._fence.number if self._fence.up or held.doubtful else 0
        self.send(
            work.AttemptsHeld(
                container_id=held.container_id, attempts=keys, window=self._window(held), question=question
            )
        )

    def report(self) -> None:
        """Say the whole truth."""
        self.send(whole_truth(self._identity, self._containers.values()))
