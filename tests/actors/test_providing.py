"""The scheduler, pools and the guard together: whatever happens, they soon have no more to say to each other.

And in the end all runs that pools may start workers for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from levers9.actors.pool import GuardSettings
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.reasons import HoldKind
from levers9.model.resources import Shape
from levers9.wire.operating import WorkerWish

from .providing import CARD, CARDS, LARGE, OFF, ONE, SHAPES, SMALL, Stage, in_order, pool


def two_pools() -> Stage:
    return Stage(pool("first", SMALL, 1, 0), pool("second", SMALL, 2, 1))


class TestFailOver:
    def test_when_the_first_pool_has_all_its_workers_the_second_one_orders_and_all_are_quiet(self) -> None:
        stage = two_pools()
        first, second, third, fourth = stage.ask(ONE, ONE, ONE, ONE)
        in_order(stage)
        in_order(stage)
        assert [stage.where(name) for name in (first, second, third)] == ["first", "second", "second"]
        assert stage.waiting() == [fourth]
        assert HoldKind.MAXIMUM in stage.kinds["w 0"]

    @pytest.mark.parametrize("later", [1, 2, 3])
    def test_it_makes_no_difference_that_the_first_one_was_full_before(self, later: int) -> None:
        stage = two_pools()
        stage.ask(ONE)
        in_order(stage)
        stage.ask(*[ONE] * later)
        in_order(stage)
        assert len(stage.runs) == min(3, 1 + later)

    def test_the_first_one_is_asked_again_once_a_worker_of_it_has_gone(self) -> None:
        stage = two_pools()
        stage.ask(ONE, ONE, ONE, ONE)
        in_order(stage)
        in_order(stage)
        (gone,) = [name for name in stage.pool_of if stage.pool_of[name] == "pool/first"]
        stage.tick(40.0)
        stage.exit(gone)
        in_order(stage)
        assert sorted(map(stage.where, stage.runs)) == ["first", "second", "second"]

    def test_while_the_first_one_backs_off_the_second_one_takes_its_place(self) -> None:
        stage = two_pools()
        (name,) = stage.ask(ONE)
        stage.settle()
        for _ in range(5):
            if "pool/first" in stage.pool_of.values():
                stage.exit(next(iter(stage.pool_of)))
            stage.settle()
        in_order(stage)
        assert stage.where(name) == "second"

    def test_room_is_kept_for_who_waits_and_not_for_who_has_had_it(self) -> None:
        node = NodeOffer(capacity=CARDS, traits=Traits(node="a"), state=NodeState.READY)
        stage = Stage(pool("third", None, 1, 0, nodes=(node,)))
        first, second, third = stage.ask(CARD, CARD, CARD)
        in_order(stage)
        assert list(stage.runs) == [first, second]
        stage.tick(400.0)
        stage.end(first)
        in_order(stage)
        assert stage.where(third) == "third"

    def test_a_worker_that_was_given_up_and_runs_on_counts_for_its_pool_until_it_has_ended(self) -> None:
        stage = two_pools()
        stage.ask(ONE)
        in_order(stage)
        (worker_id,) = stage.pool_of
        stage.quiet(worker_id)
        stage.settle()
        for _ in range(400):
            stage.tick(1.0)
            stage.hop()
        (again,) = stage.ask(ONE)
        in_order(stage)
        assert stage.where(again) == "second"
        assert worker_id in stage.pool_of


class ProvidingMachine(RuleBasedStateMachine):
    @initialize(
        most=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)),
        served=st.sampled_from(["", "w"]),
        guarded=st.booleans(),
    )
    def begin(self, most: tuple[int, int, int], served: str, guarded: bool) -> None:
        ready = NodeState.READY
        nodes = tuple(
            NodeOffer(capacity=size, traits=Traits(node=name), state=state)
            for name, size, state in (("a", CARDS, ready), ("b", LARGE, ready), ("c", CARDS, NodeState.CORDONED))
        )
        self.stage = Stage(
            pool("first", SMALL, most[0], 0),
            pool("second", LARGE, most[1], 1, serves=served, min_workers=most[1] - 1),
            pool("third", None, most[2], 2, nodes=nodes),
            guard=GuardSettings(pending=2, per_minute=5) if guarded else OFF,
        )

    def one_of(self, data: st.DataObject, names: list[str], do: Callable[[str], None]) -> None:
        if names:
            do(data.draw(st.sampled_from(names)))

    @rule(shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4), workspace=st.sampled_from(["w", "v"]))
    def containers_are_asked_for(self, shapes: list[Shape], workspace: str) -> None:
        self.stage.ask(*shapes, workspace=workspace)

    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.runs), self.stage.end)

    @rule(data=st.data())
    def one_is_not_wanted_any_more(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.shapes), self.stage.release)

    @rule(data=st.data())
    def a_worker_falls_silent(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.reported.keys() & self.stage.pool_of.keys()), self.stage.quiet)

    @rule(data=st.data())
    def a_worker_reports(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.pool_of), self.stage.report)

    @rule(data=st.data(), wish=st.sampled_from([WorkerWish.CORDON, WorkerWish.UNCORDON]))
    def a_worker_is_cordoned_or_not(self, data: st.DataObject, wish: WorkerWish) -> None:
        self.one_of(data, sorted(self.stage.pool_of), lambda name: self.stage.wish(name, wish))

    @rule(data=st.data(), expected=st.booleans())
    def a_worker_ends(self, data: st.DataObject, expected: bool) -> None:
        self.one_of(data, sorted(self.stage.pool_of), lambda name: self.stage.exit(name, expected))

    @rule(hops=st.integers(1, 4))
    def letters_are_read(self, hops: int) -> None:
        for _ in range(hops):
            self.stage.hop()

    @rule()
    def they_settle_and_workers_come(self) -> None:
        in_order(self.stage)

    @rule(seconds=st.sampled_from([0.5, 5.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.settle()
        self.stage.tick(seconds)

    def calm(self) -> None:
        """Whoever is there is heard again, and time passes."""
        stage = self.stage
        for worker_id in list(stage.pool_of):  # who was given up has ended by now
            if worker_id not in stage.scheduler.ledger.hosts:
                stage.exit(worker_id)
            elif worker_id in stage.reported:
                stage.report(worker_id)
            stage.wish(worker_id, WorkerWish.UNCORDON)
        for _ in range(4):
            in_order(stage)
            in_order(stage)
            stage.tick(61.0)
        in_order(stage)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.calm()
        stage = self.stage
        assert {name: stage.could_run(name) for name in stage.waiting() if stage.could_run(name)} == {}


TestProviding = ProvidingMachine.TestCase
TestProviding.settings = settings(settings.get_profile("property"), stateful_step_count=8)
TestProviding = pytest.mark.slow(TestProviding)
