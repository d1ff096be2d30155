"""What workers say of themselves: in somebody else's cluster they may say anything."""

from __future__ import annotations

import msgspec
import pytest
from levers9_test_deciding import SIZE
from levers9_test_scheduler import Stage

from levers9.actors.scheduler.hearsay import WHY_MAX
from levers9.model.figures import CREDIT_WINDOW_MAX
from levers9.model.hearsay import INT4_MAX
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity
from levers9.model.states import End, WorkerState
from levers9.store import operations as ops
from levers9.wire import scheduling
from levers9.wire.letter import Letter

ORDERED = Capacity(cpu_milli=2000, memory_mib=1000, gpu_count=2, gpu_type="GB200")
HUGE = Capacity(cpu_milli=2**31, memory_mib=2**63, gpu_count=2**31, gpu_type="B300\x1b")


def on_a_node(stage: Stage) -> None:
    """A worker was ordered for a named node."""
    row = ops.WorkerRow(
        worker_id="one", pool="default", state=WorkerState.ORDERED, capacity=ORDERED, traits=Traits(node="n1")
    )
    stage.truth.ask(ops.PutWorkers(workers=(row,)))
    message = scheduling.WorkerOrdered(worker_id="one", pool="default", capacity=ORDERED, traits=row.traits)
    stage.say(Letter(message, source="pool/default", target="scheduler"))


def size(stage: Stage) -> Capacity:
    return stage.truth.tables.workers["one"].capacity


def test_on_a_named_node_nothing_counts_beyond_what_was_ordered() -> None:
    stage = Stage()
    on_a_node(stage)
    stage.say(stage.report(size=HUGE))
    assert size(stage) == ORDERED
    stage.say(stage.report(size=msgspec.structs.replace(ORDERED, gpu_count=1, cpu_milli=-5)))
    assert size(stage) == msgspec.structs.replace(ORDERED, gpu_count=1, cpu_milli=0)


def test_a_new_leader_believes_no_more_than_the_row() -> None:
    stage = Stage()
    on_a_node(stage)
    stage.restart()
    stage.say(stage.report(size=HUGE))
    assert size(stage) == ORDERED


def test_elsewhere_a_size_is_one_that_a_row_holds() -> None:
    stage = Stage()
    stage.say(stage.order(), stage.report(size=HUGE))
    assert size(stage).cpu_milli == INT4_MAX
    assert size(stage).gpu_count <= INT4_MAX
    assert size(stage).gpu_type.isprintable()


@pytest.mark.parametrize("epoch", [-1, 2**63, 2**64 - 1])
def test_a_life_that_no_row_holds_counts_for_nothing(epoch: int) -> None:
    stage = Stage()
    stage.say(stage.order(), stage.report(epoch=epoch, size=SIZE))
    assert stage.truth.worker_states() == {"one": WorkerState.ORDERED}


def test_a_container_takes_no_more_calls_ahead_than_any_is_given() -> None:
    stage = Stage()
    stage.worker()
    stage.say(stage.request("a"))
    (available,) = stage.say(stage.ready("a", window=2**63)).of(scheduling.ContainerAvailable)
    assert available.window == CREDIT_WINDOW_MAX
    (available,) = stage.say(stage.ready("a", window=-1)).of(scheduling.ContainerAvailable)
    assert available.window == 0


def test_how_a_container_ended_is_told_in_some_lines_that_drive_no_terminal() -> None:
    stage = Stage()
    stage.running("a")
    message = scheduling.ContainerEnded(container_id="a", end=End.ERROR, why="\x1b[2Jfirst\n" + "x" * 900_000)
    (gone,) = stage.say(stage.of_worker(message)).of(scheduling.ContainerGone)
    first, second = gone.why.split("\n")
    assert first == "�[2Jfirst"
    assert len(second) <= WHY_MAX


class TestOneWithoutTheCardsThatWereOrdered:
    """It keeps the cards of its node from others, and has no use for them."""

    none = msgspec.structs.replace(ORDERED, gpu_count=0, gpu_type="")

    def test_it_is_made_to_leave_and_its_pool_hears_why(self) -> None:
        stage = Stage()
        on_a_node(stage)
        sent = stage.say(stage.report(size=self.none, lacks="nothing says which are its own"))
        assert sent.only(scheduling.WorkerArrived).lacks == "nothing says which are its own"
        why = "it has none of the cards that were ordered: nothing says which are its own"
        assert sent.only(scheduling.StopWorker).why == why
        assert stage.truth.tables.workers["one"].state is WorkerState.DRAINING

    def test_what_it_says_drives_no_terminal(self) -> None:
        stage = Stage()
        on_a_node(stage)
        sent = stage.say(stage.report(size=self.none, lacks="\x1b[2J" * 1000))
        for said in (sent.only(scheduling.WorkerArrived).lacks, sent.only(scheduling.StopWorker).why):
            assert said.isprintable()
            assert len(said) < 700

    def test_one_that_does_not_say_why_as_well(self) -> None:
        stage = Stage()
        on_a_node(stage)
        assert stage.say(stage.report(size=self.none)).only(scheduling.WorkerArrived).lacks == "it does not say why"

    @pytest.mark.parametrize("cards", [1, 2])
    def test_one_with_some_of_them_stays(self, cards: int) -> None:
        stage = Stage()
        on_a_node(stage)
        size = msgspec.structs.replace(ORDERED, gpu_count=cards)
        sent = stage.say(stage.report(size=size, lacks="only 1 is there"))
        assert (sent.only(scheduling.WorkerArrived).lacks, sent.of(scheduling.StopWorker)) == ("", [])

    def test_and_one_that_was_ordered_without(self) -> None:
        stage = Stage()
        sent = stage.worker()
        assert (sent.only(scheduling.WorkerArrived).lacks, sent.of(scheduling.StopWorker)) == ("", [])
