"""Orders under every sequence of events, with commits that fail and reigns that end at any step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_deciding import SHAPE
from levers9_test_pool import Stage

from levers9.errors import StoreUnavailable
from levers9.model.states import WorkerState
from levers9.wire import scheduling
from levers9.wire.letter import Letter

pytestmark = pytest.mark.slow


class PoolMachine(RuleBasedStateMachine):
    @initialize(low=st.integers(0, 2), more=st.integers(0, 2))
    def begin(self, low: int, more: int) -> None:
        self.low, self.high = low, max(1, low + more)
        self.stage = Stage(low, self.high)
        self.processes: dict[str, bool] = {}  # each that was ever started, and whether it runs
        self.watched: dict[str, None] = {}
        self.inbox: list[Letter] = []
        self.heard: dict[str, None] = {}  # orders that the scheduler has heard of

    @rule(count=st.integers(0, 5), late=st.integers(0, 1))
    def the_scheduler_wants(self, count: int, late: int) -> None:
        seen = max(0, len(self.heard) - late)
        self.inbox.append(self.stage.wanted(*[SHAPE] * count, seen=seen))

    @rule(how=st.sampled_from(["well", "well", "well", "before", "after"]))
    def decide(self, how: str) -> None:
        letters, self.inbox = self.inbox, []
        stage = self.stage
        stage.starts, stage.adopts = [], []
        try:
            sent = stage.say(*letters, how=how)
        except StoreUnavailable:
            assert how != "well"
            self.begin_reign()
            return
        for order in stage.starts:
            assert order.worker_id not in self.processes, "an order is started once"
            self.processes[order.worker_id] = True
            self.watched[order.worker_id] = None
            self.inbox.append(stage.started(order.worker_id, f"h:{order.worker_id}"))
        for adopt in stage.adopts:
            self.adopt(adopt.worker_id)
        self.scheduler_hears(sent.of(scheduling.WorkerOrdered), sent.of(scheduling.WorkerGone))

    def adopt(self, worker_id: str) -> None:
        if self.processes.get(worker_id):
            self.watched[worker_id] = None
        else:
            self.inbox.append(self.stage.exited(worker_id))

    def scheduler_hears(self, orders: list[scheduling.WorkerOrdered], gone: list[scheduling.WorkerGone]) -> None:
        self.heard.update((order.worker_id, None) for order in orders)
        for message in gone:
            assert not self.processes.get(message.worker_id), "evidence of an end is true"
            self.stage.move(message.worker_id, WorkerState.GONE)

    @rule()
    def begin_reign(self) -> None:
        """The scheduler begins anew as well: it knows the orders that are not gone."""
        self.inbox.clear()
        self.watched.clear()
        self.stage.restart()
        states = self.stage.truth.worker_states()
        self.heard = dict.fromkeys(key for key, state in states.items() if state is not WorkerState.GONE)

    @rule(data=st.data(), expected=st.booleans())
    def a_process_ends(self, data: st.DataObject, expected: bool) -> None:
        running = [worker_id for worker_id, runs in self.processes.items() if runs]
        if running:
            worker_id = data.draw(st.sampled_from(running))
            self.processes[worker_id] = False
            if worker_id in self.watched:
                self.inbox.append(self.stage.exited(worker_id, expected=expected))

    @rule(seconds=st.sampled_from([0.5, 5.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.now_s += seconds
        self.stage.policy.tick(self.stage.now_s)

    @invariant()
    def never_more_run_than_the_maximum(self) -> None:
        assert sum(self.processes.values()) <= self.high

    @invariant()
    def each_process_has_a_row_that_is_not_gone(self) -> None:
        for worker_id, runs in self.processes.items():
            assert not runs or self.stage.truth.worker_states()[worker_id] is not WorkerState.GONE

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        for _ in range(8):
            self.time_passes(70.0)
            self.decide("well")
        live = self.stage.policy.live
        assert len(live) >= self.low
        assert sorted(live) == sorted(worker_id for worker_id, runs in self.processes.items() if runs)
        states = self.stage.truth.worker_states()
        assert sorted(live) == sorted(key for key, state in states.items() if state is not WorkerState.GONE)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=200, stateful_step_count=60)
