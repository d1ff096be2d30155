"""Many calls: order, bounds, failures, and what happens to what is left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from types import ModuleType

import pytest
import trio

from levers9.errors import Refused
from levers9.wire.client import CancelTasks, SubmitTasks

from .control_plane import FakeControlPlane


def test_results_come_in_the_order_of_the_inputs(plane: FakeControlPlane, work: ModuleType) -> None:
    assert list(work.double.map(range(3000))) == [2 * x for x in range(3000)]


def test_many_calls_travel_in_few_messages(plane: FakeControlPlane, work: ModuleType) -> None:
    list(work.double.map(range(2000)))
    assert sum(isinstance(message, SubmitTasks) for message in plane.seen) < 200


def test_unordered_results_are_all_there(plane: FakeControlPlane, work: ModuleType) -> None:
    assert sorted(work.double.map(range(500), ordered=False)) == [2 * x for x in range(500)]


def test_nothing_comes_of_no_inputs(plane: FakeControlPlane, work: ModuleType) -> None:
    assert list(work.double.map([])) == []


def test_a_tuple_is_one_argument(plane: FakeControlPlane, work: ModuleType) -> None:
    assert list(work.same.map([(1, 2), [3]])) == [(1, 2), [3]]


def test_inputs_may_be_endless_and_no_more_are_taken_than_have_room(plane: FakeControlPlane, work: ModuleType) -> None:
    taken: list[int] = []

    def inputs() -> Iterator[int]:
        for x in itertools.count():
            taken.append(x)
            yield x

    results = work.double.map(inputs(), max_in_flight=10)
    assert list(itertools.islice(results, 25)) == [2 * x for x in range(25)]
    assert len(taken) <= 36
    results.close()


def test_a_slow_generator_does_not_hold_back_what_it_gave_already(plane: FakeControlPlane, work: ModuleType) -> None:
    def inputs() -> Iterator[int]:
        for x in range(3):
            plane.wait_until(lambda x=x: len(plane.results) == x)
            yield x

    assert list(work.double.map(inputs())) == [0, 2, 4]


def test_the_first_failure_is_raised_and_the_rest_is_cancelled(plane: FakeControlPlane, work: ModuleType) -> None:
    results = work.fail_on_odd.map(itertools.count(), max_in_flight=8)
    with pytest.raises(work.Unhappy, match="unhappy about 1"):
        for _ in results:
            pass
    assert list(results) == []


def test_failures_can_be_handed_out_in_their_places(plane: FakeControlPlane, work: ModuleType) -> None:
    results = list(work.fail_on_odd.map(range(4), return_exceptions=True))
    assert results[0::2] == [0, 2]
    assert [(type(error), error.what) for error in results[1::2]] == [(work.Unhappy, "1"), (work.Unhappy, "3")]


def test_leaving_a_map_early_cancels_what_is_outstanding(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    results = work.double.map(range(5))
    plane.wait_until(lambda: len(plane.tasks) == 5)
    del results
    plane.wait_until(lambda: len(plane.results) == 5)
    assert sum(len(message.task_ids) for message in plane.seen if isinstance(message, CancelTasks)) == 5


def test_an_input_that_cannot_be_pickled_is_named(plane: FakeControlPlane, work: ModuleType) -> None:
    with pytest.raises(Refused, match="Argument 1, a generator, cannot be pickled"):
        list(work.same.map([(x for x in [])]))


def test_no_room_is_refused(plane: FakeControlPlane, work: ModuleType) -> None:
    with pytest.raises(Refused, match="max_in_flight=0"):
        work.double.map([1], max_in_flight=0)


def test_it_iterates_inside_asyncio(plane: FakeControlPlane, work: ModuleType) -> None:
    async def main() -> list[int]:
        return [value async for value in work.double.map.aio(range(1000))]

    assert asyncio.run(main()) == [2 * x for x in range(1000)]


async def test_it_iterates_inside_trio(plane: FakeControlPlane, work: ModuleType) -> None:
    with trio.fail_after(10):
        assert [value async for value in work.double.map.aio(range(1000))] == [2 * x for x in range(1000)]


async def test_cancelling_the_loop_cancels_the_calls(plane: FakeControlPlane, work: ModuleType) -> None:
    async def consume() -> None:
        async for _ in work.double.map.aio(range(5)):
            pass

    plane.hold = True
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.to_thread.run_sync(lambda: plane.wait_until(lambda: len(plane.tasks) == 5))
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(lambda: plane.wait_until(lambda: len(plane.results) == 5))
    assert any(isinstance(message, CancelTasks) for message in plane.seen)


def test_progress_tells_how_many_are_done(plane: FakeControlPlane, work: ModuleType) -> None:
    results = work.double.map(range(10))
    assert sum(1 for _ in results) == 10
    assert (results.progress().submitted, results.progress().finished) == (10, 10)
