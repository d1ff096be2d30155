"""What people's functions do in a world: how long a call takes, what it returns, and how it may go wrong, by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from levers9.actors.worker.events import Launch
from levers9.actors.worker.runtime.face import Exit
from levers9.actors.worker.runtime.simulated import Ran
from levers9.model.ids import Chance
from levers9.model.resources import Shape
from levers9.model.states import End
from levers9.wire.client import StubSpec
from levers9.wire.message import Failure, Payload
from levers9.wire.work import AttemptOrder, AttemptResult

from .journal import seed_of

FOREVER_S: Final = 1e7
TIMEOUT_S: Final = 6.0
LASTING_S: Final = 340.0  # a call that outlives the lease of its worker
ENDLESS: Final = "endless"  # only a cancel ends a call of this one


@dataclass(frozen=True)
class Function:
    """One function. Its chances are those of one attempt.

    One that `lasts` goes on for longer than a lease; `killed` and `no_memory` take the container along.
    """

    name: str
    call: Callable[[int], object]
    least_s: float
    most_s: float
    raises: float = 0.0
    killed: float = 0.0
    no_memory: float = 0.0
    hangs: float = 0.0
    lasts: float = 0.0
    fails_to_load: float = 0.0
    cpu_milli: int = 500
    nodes: int = 1
    retries: int = 3
    timeout_s: float = TIMEOUT_S

    def spec(self) -> StubSpec:
        """The function as the platform knows it."""
        return StubSpec(
            app="world",
            name=self.name,
            kind="job",
            handler=f"world:{self.name}",
            code_key="",
            python="3.11",
            shape=Shape(cpu_milli=self.cpu_milli, memory_mib=256),
            timeout_s=self.timeout_s,
            retries=self.retries,
            nodes=self.nodes,
        )


FUNCTIONS: Final = {
    function.name: function
    for function in (
        Function("double", lambda number: 2 * number, 0.001, 0.05),
        Function("slow", lambda number: number + 1, 0.3, 4.0),
        Function("flaky", lambda number: -number, 0.01, 0.5, raises=0.2),
        Function("fragile", lambda number: number % 7, 0.01, 0.5, killed=0.1),
        Function("hungry", lambda number: [number], 0.01, 0.5, no_memory=0.05),
        Function("stuck", lambda number: str(number), 0.01, 0.5, hangs=0.1),
        Function("uneven", lambda number: number * number, 0.001, 0.004, lasts=0.02, timeout_s=1000.0),
        Function(ENDLESS, lambda number: None, 0.01, 0.5, hangs=1.0, timeout_s=FOREVER_S),
        Function("large", lambda number: "x" * (600 << 10) + str(number), 0.01, 0.2, cpu_milli=1000),
        Function("together", lambda number: number * 2, 0.05, 0.8, raises=0.03, killed=0.05, hangs=0.02, nodes=2),
        Function("many together", lambda number: [number] * 2, 0.01, 0.2, killed=0.02, cpu_milli=250, nodes=5),
        Function("unloadable", lambda number: number, 0.01, 0.5, fails_to_load=0.3),
    )
}


def packed(value: object) -> Payload:
    """Plain values, as the SDK packs them."""
    data = msgspec.msgpack.encode(value)
    return Payload("msgpack", data, "", len(data))


class Behaviour:
    """How attempts go. Each (task, attempt) draws for itself, so that the order of calls changes nothing."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def loads(self, launch: Launch) -> bool:
        """Whether the code of this container can be loaded."""
        chance = Chance(seed_of(self._seed, "load", launch.container_id))
        return chance.uniform(0, 1) >= _function(launch).fails_to_load

    def ran(self, launch: Launch, order: AttemptOrder) -> Ran:
        """How this attempt goes."""
        function = _function(launch)
        ranked = (launch.rank,) if launch.gang_id else ()
        chance = Chance(seed_of(self._seed, "call", order.task_id, order.attempt, *ranked))
        duration_s, luck = chance.uniform(function.least_s, function.most_s), chance.uniform(0, 1)
        for odds, ran in (
            (function.hangs, Ran(duration_s=FOREVER_S)),
            (function.killed, Ran(duration_s=duration_s, exits=Exit(end=End.KILLED, why="signal 9"))),
            (function.no_memory, Ran(duration_s=duration_s, exits=Exit(end=End.OUT_OF_MEMORY, why="no memory"))),
            (function.raises, Ran(duration_s=duration_s, result=_raised(order, duration_s))),
        ):
            if luck < odds:
                return ran
            luck -= odds
        duration_s = LASTING_S if luck < function.lasts else duration_s
        (number,), _ = msgspec.msgpack.decode(order.arguments.data)
        result = packed(function.call(number))
        return Ran(
            duration_s=duration_s,
            result=AttemptResult(order.task_id, order.attempt, End.OK, True, result, None, duration_s),
        )


def _function(launch: Launch) -> Function:
    return FUNCTIONS[launch.spec.handler.partition(":")[2]]


def _raised(order: AttemptOrder, duration_s: float) -> AttemptResult:
    failure = Failure("error", "ValueError: bad luck")
    return AttemptResult(order.task_id, order.attempt, End.ERROR, True, None, failure, duration_s)
