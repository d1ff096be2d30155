"""The public API as type checkers see it. Never run: `mypy --strict` over this file is the test."""

from collections.abc import Coroutine
from typing import Any, assert_type

from levers9 import Client, Gang, Task, Topology, gang, job
from levers9.sdk.mapping import AsyncMapResults, MapResults


@job
def double(x: int) -> int:
    return 2 * x


@job(cpu=2, memory="1Gi", gpu=["H100", "A100"], timeout=60, env={"A": "b"})
def greet(name: str, *, loudly: bool = False) -> str:
    return name


@job
async def later(x: int) -> float:
    return float(x)


@job(nodes=4, topology="node", queue="research", priority="high", gpu={"L4", "A100"}, wait_s=60.0)
def train(rate: float) -> float:
    return rate * gang().rank


@job(nodes=8, topology=Topology("rack", mode="preferred", slice_size=4), gpu=["L4"], gpu_share=0.5)
def tune(rate: float) -> str:
    return gang().address


@job(retries=0)
async def much_later(x: int) -> float:
    return float(x)


assert_type(double(1), int)
assert_type(double.local(1), int)
assert_type(double.remote(1), int)
assert_type(double.submit(1), Task[int])
assert_type(double.submit(1).result(wait=True), int)
assert_type(double.map([1, 2]), MapResults[int])
assert_type(double.map([1], return_exceptions=False), MapResults[int])
assert_type(double.map([1], return_exceptions=True), MapResults[int | Exception])
assert_type(double.map.aio([1]), AsyncMapResults[int])
assert_type(double.map.aio([1], return_exceptions=True), AsyncMapResults[int | Exception])
assert_type(greet.remote("you", loudly=True), str)
assert_type(train.remote(0.1), float)
assert_type(tune.remote(0.1), str)
assert_type(gang(), Gang)
assert_type(later.remote(1), float)
coroutines = [later(1)]
assert_type(coroutines, list[Coroutine[Any, Any, float]])
assert_type(much_later.remote(1), float)
assert_type(Client().get_task_by_id("task-1"), Task[object])

double.remote("one")  # type: ignore[arg-type]
double.remote()  # type: ignore[call-arg]
double.remote(1, 2)  # type: ignore[call-arg]
greet.remote("you", quietly=True)  # type: ignore[call-arg]
job(cpu=None)  # type: ignore[call-overload]
job(image="debian")  # type: ignore[call-overload]
job(nodes="2")  # type: ignore[call-overload]
Topology("rack", mode="always")  # type: ignore[arg-type]


async def asynchronous() -> None:
    assert_type(await double.remote.aio(1), int)
    assert_type(await later.remote.aio(1), float)
    assert_type(await double.submit.aio(1), Task[int])
    async for value in double.map.aio([1]):
        assert_type(value, int)
