"""A policy, the truth that its plans change, and what it sends: one decide-commit-send loop without a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from levers9.errors import OutcomeUnknown, StoreUnavailable
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, TaskState, TokenKind, WorkerState
from levers9.store import memory as _registers_operations  # noqa: F401
from levers9.store import operations as ops
from levers9.store.memory.tables import Tables, carry_out
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Payload, Send

M = TypeVar("M", bound=Message)
SHAPE = Shape(cpu_milli=1000, memory_mib=100)
SIZE = Capacity(cpu_milli=2000, memory_mib=1000)
ARGUMENTS = Payload("msgpack", b"x")


def spec_of(name: str = "f", **changes: Any) -> StubSpec:
    given: dict[str, Any] = {
        "app": "app",
        "name": name,
        "kind": "job",
        "handler": f"m:{name}",
        "code_key": "",
        "python": "3.11",
        "shape": SHAPE,
        "timeout_s": 60.0,
        "retries": 2,
    }
    return StubSpec(**{**given, **changes})


def numbered() -> Callable[[str], str]:
    """Identities in order: container-1, container-2 …"""
    numbers = itertools.count(1)
    return lambda kind: f"{kind}-{next(numbers)}"


def numbered_tokens() -> Callable[[TokenKind], str]:
    numbers = itertools.count(1)
    return lambda kind: f"{kind}-secret-{next(numbers)}"


class Truth:
    """The rows, changed by the real operations; a commit may fail before or after it happened."""

    def __init__(self) -> None:
        self.tables = Tables()

    def commit(self, operations: Sequence[ops.Operation], how: str = "well") -> tuple[ops.Answer, ...]:
        if how == "before":
            raise StoreUnavailable("nothing was done")
        answers = tuple(carry_out(self.tables, operation) for operation in operations)
        if how == "after":
            raise OutcomeUnknown("it was done")
        return answers

    def ask(self, operation: ops.Operation) -> ops.Answer:
        return self.commit([operation])[0]

    def task(self, task_id: str) -> ops.TaskRow:
        return self.tables.tasks[task_id]

    def state(self, task_id: str) -> TaskState:
        return self.tables.tasks[task_id].state

    def container_states(self) -> dict[str, ContainerState]:
        return {row.container_id: row.state for row in self.tables.containers.values()}

    def worker_states(self) -> dict[str, WorkerState]:
        return {row.worker_id: row.state for row in self.tables.workers.values()}


class Sent(list[Send]):
    """What a step sent, in order."""

    def of(self, kind: type[M]) -> list[M]:
        return [send.message for send in self if isinstance(send.message, kind)]

    def to(self, target: str, kind: type[M]) -> list[M]:
        return [send.message for send in self if send.target == target and isinstance(send.message, kind)]

    def only(self, kind: type[M]) -> M:
        (message,) = self.of(kind)
        return message


def decide(policy: Any, truth: Truth, letters: Sequence[Letter], now_s: float, how: str = "well") -> Iterator[Any]:
    """Plans of one group, each committed and settled; yields (plan, sends)."""
    for letter in letters:
        policy.handle(letter, now_s)
    while (plan := policy.plan(now_s)) is not None:
        answers = truth.commit(plan.operations, how)
        yield plan, policy.settle(plan, answers)


def sends_of(policy: Any, truth: Truth, letters: Sequence[Letter], now_s: float) -> Sent:
    return Sent(send for _, sends in decide(policy, truth, letters, now_s) for send in sends)
