"""Workers that a machine plays: they follow the contract of `wire/work.py`, and nothing else."""

from __future__ import annotations

from levers9.model.states import End
from levers9.wire import work
from levers9.wire.message import Message, Payload
from levers9.wire.work import AttemptKey, AttemptOrder, AttemptResult


class Container:
    """A container on a worker: attempts wait in order, one runs, results are kept until they are committed."""

    def __init__(self, container_id: str, window: int) -> None:
        self.container_id = container_id
        self.window = window
        self.waiting: dict[AttemptKey, AttemptOrder] = {}
        self.running: AttemptKey | None = None
        self.results: dict[AttemptKey, AttemptResult] = {}
        self.seen: set[AttemptKey] = set()


class Worker:
    """Follows the contract: a repeated order is ignored, a cancelled attempt never starts, results are kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.containers: dict[str, Container] = {}
        self.inbox: list[Message] = []
        self.outbox: list[Message] = []
        self.started: list[tuple[AttemptKey, str]] = []

    def take_all(self) -> None:
        inbox, self.inbox = self.inbox, []
        for message in inbox:
            container = self.containers.get(message.container_id)  # type: ignore[attr-defined]
            match message:
                case work.RunAttempts(container_id=container_id, attempts=orders):
                    for order in orders:
                        self.run(container, container_id, order)
                case work.CancelAttempts(attempts=keys, superseded=superseded) if container is not None:
                    for key in keys:
                        self.cancel(container, key, superseded)
                case work.ResultsCommitted(attempts=keys) if container is not None:
                    for key in keys:
                        container.results.pop(key, None)

    def run(self, container: Container | None, container_id: str, order: AttemptOrder) -> None:
        key = AttemptKey(order.task_id, order.attempt)
        if container is None:
            self.tell(container_id, (AttemptResult(*pair_of(key), End.DISCONNECTED, False),), 0)
        elif key not in container.seen:
            container.seen.add(key)
            container.waiting[key] = order

    def cancel(self, container: Container, key: AttemptKey, superseded: bool) -> None:
        if key == container.running:
            self.finish(container, End.CANCELLED)
        elif key in container.waiting or key not in container.seen:
            container.seen.add(key)
            container.waiting.pop(key, None)
            self.keep(container, AttemptResult(*pair_of(key), End.CANCELLED, False))
        if superseded:
            container.results.pop(key, None)

    def start(self, container: Container) -> AttemptKey | None:
        if container.running is None and container.waiting:
            container.running = next(iter(container.waiting))
            del container.waiting[container.running]
            self.started.append((container.running, container.container_id))
            return container.running
        return None

    def finish(self, container: Container, end: End) -> None:
        key, container.running = container.running, None
        assert key is not None
        value = Payload("msgpack", f"{key.task_id}/{key.attempt}".encode()) if end is End.OK else None
        self.keep(container, AttemptResult(*pair_of(key), end, True, value, None, 0.01))

    def keep(self, container: Container, result: AttemptResult) -> None:
        container.results[AttemptKey(result.task_id, result.attempt)] = result
        self.tell(container.container_id, (result,), container.window)

    def tell(self, container_id: str, results: tuple[AttemptResult, ...], window: int) -> None:
        self.outbox.append(work.AttemptsFinished(container_id=container_id, results=results, window=window))

    def tell_everything(self) -> None:
        """After a new stream, or for a new leader: what was on its way is lost."""
        self.outbox.clear()
        self.inbox.clear()
        for container in self.containers.values():
            if container.results:
                self.tell(container.container_id, tuple(container.results.values()), container.window)
            keys = (*container.waiting, *container.results)
            keys = keys if container.running is None else (container.running, *keys)
            self.outbox.append(
                work.AttemptsHeld(container_id=container.container_id, attempts=keys, window=container.window)
            )


def pair_of(key: AttemptKey) -> tuple[str, int]:
    return key.task_id, key.attempt
