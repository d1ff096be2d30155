"""Who submits work in a world of clusters: one caller a workspace, with the SDK's own core, in the world's loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio
from levers9_world.caller import LoopConnection, Taker
from levers9_world.functions import packed

from levers9.errors import LeversError, Refused
from levers9.model.gangs import NODE_LEVEL, Together, TopologyMode
from levers9.model.resources import Shape
from levers9.model.states import TaskState
from levers9.wire.carrier import Carrier
from levers9.wire.client import ExplainTask, NewTask, RegisterStub, StubRegistered, StubSpec, TaskResult

from .plan import WorkPlan

if TYPE_CHECKING:
    from .world import ClusterWorld

LOOKS_EVERY_S: Final = 1.0
EXPLAINED_WITHIN_S: Final = 30.0
RACK: Final = "topology.kubernetes.io/rack"
TIMEOUT_S: Final = 2000.0
RETRIES: Final = 6  # workers die often here, and the reason for an end should be another one


@dataclass(frozen=True)
class _Sight:
    """What a connection needs of a world."""

    world: ClusterWorld
    name: str
    admin_token: str

    def chance(self, *part: object) -> object:
        return self.world.chance(*part, self.name)

    async def dial_gateway(self, role: str, name: str, token: str) -> Carrier:
        return await self.world.dial_gateway(role, f"{name}-{self.name}", token)


class _Connection(LoopConnection):
    """Looks for what is overdue once a second: nobody here waits for less."""

    async def _look_for_overdue(self) -> None:
        while True:
            await trio.sleep(LOOKS_EVERY_S)
            if self._was_open:
                self._send(self._ledger.acks() + self._ledger.overdue(trio.current_time()))


def spec_of(plan: WorkPlan) -> StubSpec:
    """A function as the platform knows it."""
    level = RACK if plan.in_rack else NODE_LEVEL
    mode = TopologyMode.REQUIRED if plan.in_rack else TopologyMode.NONE
    return StubSpec(
        app="clusters",
        name=plan.name,
        kind="job",
        handler=f"clusters:{plan.name}",
        code_key="",
        python="3.11",
        shape=Shape(
            cpu_milli=500,
            memory_mib=256,
            gpu_count=plan.cards,
            gpu_types=(plan.gpu_type,) if plan.gpu_type else (),
        ),
        timeout_s=TIMEOUT_S,
        retries=RETRIES,
        nodes=plan.nodes,
        together=Together(mode=mode, level=level) if plan.nodes > 1 and plan.in_rack else Together(),
    )


class Caller(Taker):
    """One workspace's. Takes results, and holds each against the truth (I3, I9)."""

    def __init__(self, world: ClusterWorld, workspace: str, token: str) -> None:
        self._world = world
        self._chance = world.chance("calls", workspace)
        self.workspace = workspace
        self.calls: dict[str, None] = {}
        super().__init__(world, world.attempts, self.calls)
        self.connection = _Connection(_Sight(world, workspace, token))  # type: ignore[arg-type]
        self._submitted: list[tuple[str, ...]] = []

    def check(self, task_id: str, outcome: TaskResult | LeversError) -> None:
        """See `Taker`."""
        row = self._world.truth.tables.tasks.get(task_id)
        if isinstance(outcome, LeversError):
            if row is not None:
                self._world.violated(f"I3: {task_id} was accepted, and its caller was told {outcome!r}")
            self._world.check_refusal(self.workspace, task_id, outcome)
            return
        if row is None or row.state is not outcome.state:
            state = "nowhere" if row is None else row.state
            self._world.violated(f"I3: {task_id} is {state}, and its caller was told {outcome.state}")
        if outcome.state is TaskState.CANCELLED:
            self._world.attempts.cancelled[task_id] = None
        if outcome.state is TaskState.ERROR:
            self._world.check_error(task_id, outcome)

    async def submit(self, plan: WorkPlan) -> None:
        """Submit one kind of work. One that no pool can do now is refused, and is not tried again."""
        await trio.sleep_until(self._world.begins_at_s + plan.at_s)
        try:
            registered = await self.connection.answer_to(RegisterStub(spec=spec_of(plan)))
        except Refused as refused:
            self._world.check_refusal(self.workspace, plan.name, refused)
            return
        assert isinstance(registered, StubRegistered)
        tasks = tuple(NewTask(self._chance.id("task"), packed([[number], {}])) for number in range(plan.calls))
        self.calls |= {task.task_id: None for task in tasks}
        self._submitted.append(tuple(self.calls)[-len(tasks) :])
        self.connection.submit(registered.stub_id, tasks, self)

    async def why_missing(self) -> str:
        """How many calls have not ended, and why the first of them waits, in the platform's words."""
        first = self.missing()[0]
        with trio.move_on_after(EXPLAINED_WITHIN_S):
            told = await self.connection.answer_to(ExplainTask(task_id=first))
            return f"{len(self.missing())} of {self.workspace}, {first} for {getattr(told, 'reasons', told)}"
        return f"{len(self.missing())} of {self.workspace}, {first} and nobody says why"

    async def cancel_some(self, luck: float) -> None:
        """Cancel half of the calls of one submission, ended or not."""
        if self._submitted:
            task_ids = self._submitted[int(luck * len(self._submitted)) % len(self._submitted)]
            await self.cancel_these(task_ids[: max(1, len(task_ids) // 2)])
