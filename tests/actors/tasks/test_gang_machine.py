"""Calls of gangs under every order of events: the machine of `test_machine.py`, with several containers a call."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from levers9_test_deciding import spec_of

from levers9.actors.tasks.group import Plan
from levers9.model.states import ContainerState, End, TaskState
from levers9.wire import client, scheduling
from levers9.wire.message import Message

from .test_machine import RETRIES, TasksMachine

pytestmark = pytest.mark.slow


class GangsMachine(TasksMachine):
    @initialize(
        nodes=st.integers(2, 3),
        retries=st.integers(0, RETRIES),
        eager=st.sampled_from([1, 2, 3, 5]),
        wait_s=st.sampled_from([0.0, 3.0]),
    )
    def begin(self, nodes: int, retries: int, eager: int, wait_s: float) -> None:
        self.nodes = nodes
        self.to_stop: dict[str, None] = {}
        TasksMachine.begin(self, wait_s, retries, eager, 1)

    def spec(self, **changes: object) -> client.StubSpec:
        return spec_of(**{**changes, "nodes": self.nodes})

    @rule(data=st.data(), window=st.integers(1, 2))
    def a_gang_gets_warm(self, data: st.DataObject, window: int) -> None:
        """Each rank on any worker."""
        for container_id in self.rows(ContainerState.REQUESTED)[: self.nodes]:
            self.warm(container_id, data.draw(st.sampled_from(("one", "two"))), window)
        self.messages_travel("well", True)

    @rule(data=st.data())
    def a_container_makes_room(self, data: st.DataObject) -> None:
        alive = self.rows(ContainerState.READY)
        if alive:
            container_ids = (data.draw(st.sampled_from(alive)),)
            self.say(scheduling.YieldContainers(container_ids=container_ids), "scheduler")
        self.happened()

    @rule(data=st.data())
    def a_rank_ends_well(self, data: st.DataObject) -> None:
        busy = [
            (worker, container)
            for worker in self.workers.values()
            for container in worker.containers.values()
            if container.running is not None
        ]
        if busy:
            worker, container = data.draw(st.sampled_from(busy))
            worker.finish(container, End.OK)
        self.happened()

    @rule()
    def rest(self) -> None:
        """What one container of a gang brings about may bring about something for the others."""
        self.decide("well")
        while self.inbox:
            self.decide("well")
        self.memory_is_the_truth()

    def scheduler_hears(self, message: Message) -> None:
        """A container that is given back stops in a while; until then its code runs on, and may even begin."""
        if isinstance(message, scheduling.ReleaseContainers):
            self.to_stop.update(dict.fromkeys(message.container_ids))

    @rule()
    def what_was_given_back_stops(self) -> None:
        to_stop, self.to_stop = self.to_stop, {}
        for container_id in to_stop:
            if container_id in self.rows(ContainerState.REQUESTED, ContainerState.READY):
                self.end_container(container_id, End.CANCELLED)
        self.happened()

    def go_on(self) -> None:
        self.what_was_given_back_stops()
        super().go_on()

    def credits_hold(self, plan: Plan) -> None:
        """A call that begins, begins on each container of a whole gang at once."""
        ledger = self.policy.ledger
        for task_ids in plan.deliveries.values():
            for task_id in task_ids:
                call = ledger.calls.get(task_id)
                if call is None or call.waits:
                    continue
                gang = ledger.gang_of(call)
                assert gang is not None
                assert gang.whole
                assert sorted(gang.members) == list(range(self.nodes))
                assert all(plan.deliveries[member.container_id] == [task_id] for member in gang.members.values())

    @invariant()
    def no_attempt_starts_twice(self) -> None:
        """Not in one container, and in no more of them than the gang has."""
        started = [one for worker in self.workers.values() for one in worker.started]
        assert len(started) == len(set(started))
        ranks: dict[object, int] = {}
        for key, _ in started:
            ranks[key] = ranks.get(key, 0) + 1
        assert all(count <= self.nodes for count in ranks.values())

    @invariant()
    def counts_agree_with_what_they_count(self) -> None:
        ledger = self.policy.ledger
        for stub in ledger.stubs.values():
            running = [gang.task_id for gang in stub.gangs.values() if gang.task_id]
            assert sorted([*stub.waiting, *running]) == sorted(ledger.calls)
            assert stub.unfinished == len(ledger.calls)
            for gang in stub.gangs.values():
                held = [task_id for member in gang.members.values() for task_id in member.holding]
                assert set(held) <= {gang.task_id}
                assert gang.members or gang.task_id
                assert set(gang.ended) <= set(range(self.nodes))

    @invariant()
    def what_no_longer_runs_runs_on_no_rank(self) -> None:
        """A call that waits again, or has ended, runs nowhere: the next attempt never meets the one before."""
        for worker in self.workers.values():
            for container in worker.containers.values():
                for key in (container.running, *container.waiting):
                    row = None if key is None else self.truth.tables.tasks[key.task_id]
                    if key is not None and row is not None:
                        assert row.attempt == key.attempt
                        assert row.state in (TaskState.RUNNING, TaskState.CANCELLING)


TestGangsMachine = GangsMachine.TestCase
TestGangsMachine.settings = settings(max_examples=200, stateful_step_count=60)
