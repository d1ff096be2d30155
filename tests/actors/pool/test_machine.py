"""Orders under every sequence of events, with commits that fail, words that are late or lost, and reigns that end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_deciding import SHAPE, SIZE
from levers9_test_pool import Sent, Stage, node

from levers9.actors.pool import GuardSettings, PoolSettings
from levers9.errors import StoreUnavailable
from levers9.model.figures import GUARD_WINDOW_S, WORKER_START_LIMIT_S
from levers9.model.resources import Amount, Shape
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.scheduling import GangWanted

NODES = ("a", "b", "c", "d", "e", "f")
CORDONED = "f"
CARD = Shape(cpu_milli=1000, memory_mib=100, gpu_count=1)
PENDING = (WorkerState.ORDERED, WorkerState.PENDING)
LIMITS = GuardSettings(pending=3, per_minute=5)


def pool_on_nodes(low: int, high: int) -> PoolSettings:
    nodes = [node(name, gpu_count=index % 2, gpu_type="A100" * (index % 2)) for index, name in enumerate(NODES[:-1])]
    return PoolSettings(
        name="p", worker=None, nodes=(*nodes, node(CORDONED, state="cordoned")), min_workers=low, max_workers=high
    )


def pool_of_size(low: int, high: int) -> PoolSettings:
    return PoolSettings(
        name="p", worker=SIZE, min_workers=low, max_workers=high, keep_free=Amount(cpu_milli=1000 * low)
    )


class PoolMachine(RuleBasedStateMachine):
    @initialize(low=st.integers(0, 2), more=st.integers(0, 5), on_nodes=st.booleans())
    def begin(self, low: int, more: int, on_nodes: bool) -> None:
        self.low, self.high = low, max(1, low + more)
        made = (pool_on_nodes if on_nodes else pool_of_size)(self.low, self.high)
        self.nodes = len(made.nodes)
        self.stage = Stage(settings=made, guard=LIMITS)
        self.processes: dict[str, bool] = {}  # each that was ever started, and whether it runs
        self.watched: dict[str, None] = {}
        self.inbox: list[Letter] = []
        self.to_guard: list[Letter] = []
        self.ended: list[str] = []  # workers that the scheduler was told to be gone
        self.heard: dict[str, None] = {}  # orders that the scheduler has heard of
        self.gangs: dict[str, GangWanted] = {}  # wanted now
        self.given_back: dict[str, None] = {}

    # The scheduler

    @rule(count=st.integers(0, 5), cards=st.integers(0, 2), late=st.integers(0, 1))
    def the_scheduler_wants(self, count: int, cards: int, late: int) -> None:
        seen = max(0, len(self.heard) - late)
        shapes = [SHAPE] * count + [CARD] * cards
        self.inbox.append(self.stage.wanted(*shapes, seen=seen, gangs=tuple(self.gangs.values())))

    @rule(size=st.integers(2, 5), named=st.booleans(), first=st.integers(0, 3))
    def a_gang_comes(self, size: int, named: bool, first: int) -> None:
        if len(self.gangs) < 2:
            gang_id = f"gang-{len(self.gangs) + len(self.given_back)}"
            nodes = NODES[first : first + size] if named and self.nodes else ()
            self.gangs[gang_id] = GangWanted(gang_id, nodes=nodes, workers=0 if nodes else size)

    @rule(data=st.data())
    def a_gang_is_given_back(self, data: st.DataObject) -> None:
        if self.gangs:
            gang_id = data.draw(st.sampled_from(sorted(self.gangs)))
            del self.gangs[gang_id]
            self.given_back[gang_id] = None
            back = scheduling.GangGivenBack(gang_id=gang_id, why="too late")
            self.inbox.append(Letter(back, source="scheduler", target="pool/p"))

    @rule(data=st.data(), everybody=st.booleans())
    def workers_arrive(self, data: st.DataObject, everybody: bool) -> None:
        states = self.stage.truth.worker_states()
        coming = [key for key, runs in self.processes.items() if runs and states[key] in PENDING]
        if coming:
            self.inbox += self.stage.arrived(*(coming if everybody else [data.draw(st.sampled_from(coming))]))

    @rule(count=st.integers(1, 6))
    def all_goes_well_for_a_while(self, count: int) -> None:
        """A wish, the guard's answer, an order, an arrival: what chance would seldom put in a row."""
        self.the_scheduler_wants(count, 0, 0)
        for _ in range(2):
            self.decide("well")
            self.the_guard_answers(lost=False)
        self.decide("well")

    # The pool and the guard

    @rule(how=st.sampled_from(["well", "well", "well", "well", "before", "after"]))
    def decide(self, how: str) -> None:
        letters, self.inbox = self.inbox, []
        stage = self.stage
        stage.starts, stage.adopts, stage.ends = [], [], []
        before = stage.truth.tables.workers.copy()
        try:
            sent = stage.decide_once(letters, how)
        except StoreUnavailable:
            assert how != "well"
            self.begin_reign()
            return
        self.check_gangs(before, letters)
        self.check_pending(before)
        for order in stage.starts:
            assert order.worker_id not in self.processes, "an order is started once"
            self.processes[order.worker_id] = True
            self.watched[order.worker_id] = None
            self.inbox.append(stage.started(order.worker_id, f"h:{order.worker_id}"))
        for adopt in stage.adopts:
            self.adopt(adopt.worker_id)
        for end in stage.ends:
            assert stage.truth.tables.workers[end.worker_id].ordered_at_s <= stage.now_s - WORKER_START_LIMIT_S
            self.end(end.worker_id, expected=False)
        self.post(sent)

    def check_gangs(self, before: dict[str, ops.WorkerRow], letters: list[Letter]) -> None:
        """What one plan orders for a gang is all that the gang lacked."""
        new = [row for key, row in self.stage.truth.tables.workers.items() if key not in before]
        for gang_id in {row.gang_id for row in new if row.gang_id}:
            assert gang_id not in self.given_back or not any(
                isinstance(one.message, scheduling.GangGivenBack) and one.message.gang_id == gang_id for one in letters
            )
            live = self.stage.policy.book.of_gang(gang_id)
            wanted = self.gangs.get(gang_id)
            if wanted is not None:
                assert len(live) == (len(wanted.nodes) or wanted.workers), "all of a gang or none"

    def check_pending(self, before: dict[str, ops.WorkerRow]) -> None:
        """What is ordered keeps to the guard's limit of pending workers, or is a gang that is alone."""
        rows = self.stage.truth.tables.workers
        pending = [row for row in rows.values() if row.state in PENDING]
        if len(rows) > len(before) and len(pending) > LIMITS.pending:
            assert {row.gang_id for row in pending} != {""}
            assert len({(row.gang_id, row.ordered_at_s) for row in pending}) == 1

    def adopt(self, worker_id: str) -> None:
        if self.processes.get(worker_id):
            self.watched[worker_id] = None
        else:
            self.inbox.append(self.stage.exited(worker_id))

    def post(self, sent: Sent) -> None:
        for send in sent:
            if send.target == "guard":
                self.to_guard.append(Letter(send.message, source="pool/p", target="guard"))
        self.heard.update((order.worker_id, None) for order in sent.of(scheduling.WorkerOrdered))
        for message in sent.of(scheduling.WorkerGone):
            assert not self.processes.get(message.worker_id), "evidence of an end is true"
            self.ended.append(message.worker_id)

    @rule()
    def the_scheduler_keeps_ends(self) -> None:
        ended, self.ended = self.ended, []
        self.inbox += [self.stage.forgotten(worker_id) for worker_id in ended]

    @rule(lost=st.booleans())
    def the_guard_answers(self, lost: bool) -> None:
        """A question or an answer may be lost; what a pool has ordered never is, for both are of one reign."""
        letters, self.to_guard = self.to_guard, []
        if lost:
            letters = [one for one in letters if not isinstance(one.message, scheduling.AskGuard)]
        for letter in letters:
            self.stage.guard.handle(letter, self.stage.now_s)
        plan = self.stage.guard.plan(self.stage.now_s)
        for send in plan.sends if plan is not None else ():
            self.inbox.append(Letter(send.message, source="guard", target=send.target))

    @rule()
    def begin_reign(self) -> None:
        """All actors begin anew: they know the orders that are not gone."""
        self.inbox.clear()
        self.to_guard.clear()
        self.ended.clear()
        self.watched.clear()
        self.stage.restart()
        states = self.stage.truth.worker_states()
        self.heard = dict.fromkeys(key for key, state in states.items() if state is not WorkerState.GONE)

    # The world

    @rule(data=st.data(), expected=st.booleans())
    def a_process_ends(self, data: st.DataObject, expected: bool) -> None:
        running = [worker_id for worker_id, runs in self.processes.items() if runs]
        if running:
            self.end(data.draw(st.sampled_from(running)), expected)

    def end(self, worker_id: str, expected: bool) -> None:
        self.processes[worker_id] = False
        if worker_id in self.watched:
            self.inbox.append(self.stage.exited(worker_id, expected=expected))

    @rule(seconds=st.sampled_from([0.5, 5.0, 70.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.now_s += seconds
        self.stage.policy.tick(self.stage.now_s)

    # What always holds

    def live(self) -> list[ops.WorkerRow]:
        return [row for row in self.stage.truth.tables.workers.values() if row.state is not WorkerState.GONE]

    @invariant()
    def a_node_has_one_worker_and_no_more_are_pending_than_there_are_nodes(self) -> None:
        if not hasattr(self, "stage") or not self.nodes:
            return
        names = [row.traits.node for row in self.live()]
        assert len(names) == len(set(names)), "I1"
        assert CORDONED not in names
        assert sum(row.state in PENDING for row in self.live()) <= self.nodes

    @invariant()
    def never_more_run_or_are_ordered_than_the_maximum(self) -> None:
        if hasattr(self, "stage"):
            assert sum(self.processes.values()) <= self.high
            assert len(self.live()) <= self.high

    @invariant()
    def the_guard_let_every_one_of_them_through(self) -> None:
        """In no minute more than the limit, unless one gang alone is more than that."""
        if not hasattr(self, "stage"):
            return
        rows = list(self.stage.truth.tables.workers.values())
        for row in rows:
            within = [one for one in rows if row.ordered_at_s - GUARD_WINDOW_S < one.ordered_at_s <= row.ordered_at_s]
            alone = len({(one.gang_id, one.ordered_at_s) for one in within}) == 1 and within[0].gang_id != ""
            assert len(within) <= LIMITS.per_minute or alone

    @invariant()
    def each_process_has_a_row_that_is_not_gone(self) -> None:
        for worker_id, runs in getattr(self, "processes", {}).items():
            assert not runs or self.stage.truth.worker_states()[worker_id] is not WorkerState.GONE

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        for _ in range(12):
            self.the_scheduler_wants(0, 0, 0)  # it tells all again every few seconds
            self.time_passes(70.0)
            self.the_guard_answers(lost=False)
            self.the_scheduler_keeps_ends()
            self.decide("well")
            for worker_id, runs in self.processes.items():
                if runs and self.stage.truth.worker_states()[worker_id] in PENDING:
                    self.inbox += self.stage.arrived(worker_id)
        live = self.stage.policy.live
        assert len(live) >= self.low
        assert sorted(live) == sorted(worker_id for worker_id, runs in self.processes.items() if runs)
        assert sorted(live) == sorted(row.worker_id for row in self.live())


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(settings.get_profile("property"))
TestPoolMachine = pytest.mark.slow(TestPoolMachine)
