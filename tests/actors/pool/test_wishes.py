"""Gangs, named nodes, what is kept free, and the guard above: what a pool orders, and what it says of the rest."""

from __future__ import annotations

import pytest
from levers9_test_deciding import SHAPE, SIZE
from levers9_test_pool import Sent, Stage, node

from levers9.actors.pool import GuardSettings, PoolSettings
from levers9.actors.pool.settings import retiring
from levers9.model.reasons import HoldKind
from levers9.model.resources import Amount, Shape
from levers9.model.states import WorkerState
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.operating import TellWorkers, WorkerWish
from levers9.wire.scheduling import GangWanted

CARD = Shape(cpu_milli=100, memory_mib=10, gpu_count=1)


def on_nodes(*nodes: object, max_workers: int = 99, guard: GuardSettings | None = None, **changes: object) -> Stage:
    settings = PoolSettings(name="p", worker=None, nodes=nodes, max_workers=max_workers, **changes)  # type: ignore[arg-type]
    return Stage(settings=settings) if guard is None else Stage(settings=settings, guard=guard)


def placed(sent: Sent) -> list[str]:
    return [message.traits.node for message in sent.of(scheduling.WorkerOrdered)]


def held(sent: Sent) -> dict[str, tuple[HoldKind, str] | None]:
    found = sent.of(scheduling.PoolHeld)
    return {one.gang_id: None if one.reason is None else (one.reason.kind, one.why) for one in found}


class TestNodes:
    def test_a_worker_stands_on_a_node_with_its_size_and_labels(self) -> None:
        stage = on_nodes(node("a", 2, "A100", rack="r1"))
        sent = stage.say(stage.wanted(CARD))
        order = sent.only(scheduling.WorkerOrdered)
        assert (order.capacity.gpu_count, order.traits.node, order.traits.label("rack")) == (2, "a", "r1")
        assert (stage.starts[0].capacity, stage.starts[0].traits) == (order.capacity, order.traits)
        assert stage.truth.tables.workers[order.worker_id].traits == order.traits

    def test_no_node_gets_a_second_worker_whatever_is_wished(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        sent = stage.say(stage.wanted(*[SHAPE] * 9))
        assert (placed(sent), held(sent)) == (
            ["a", "b"],
            {"": (HoldKind.MAXIMUM, "none of its 2 nodes can take another worker.")},
        )
        sent = stage.say(stage.wanted(*[SHAPE] * 9))
        assert (placed(sent), held(sent)) == ([], {})
        stage.say(*stage.arrived(*stage.ordered()))
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9))) == []

    def test_a_node_is_free_again_once_its_worker_has_gone(self) -> None:
        stage = on_nodes(node("a"))
        stage.say(stage.wanted(SHAPE))
        stage.gone(stage.ordered()[0])
        assert placed(stage.say(stage.wanted(SHAPE))) == ["a"]

    def test_the_node_of_a_worker_that_has_ended_gets_the_next_when_the_row_says_so_and_not_before(self) -> None:
        stage = on_nodes(node("a"))
        stage.slow = True
        stage.say(stage.wanted(SHAPE))
        stage.say(stage.exited(stage.ordered()[0], expected=True))
        assert placed(stage.say(stage.wanted(SHAPE))) == []
        assert stage.say(stage.exited(stage.ordered()[0], expected=True)) == [], "it is told once"
        assert placed(stage.say(stage.forgotten(stage.ordered()[0]))) == ["a"]

    def test_only_what_has_ended_is_forgotten(self) -> None:
        stage = on_nodes(node("a"))
        stage.say(stage.wanted(SHAPE))
        letter = Letter(scheduling.WorkerForgotten(worker_id=stage.ordered()[0]), source="scheduler", target="pool/p")
        assert placed(stage.say(letter, stage.wanted(SHAPE))) == []

    def test_a_new_leader_knows_from_the_rows_who_stands_where(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        stage.say(stage.wanted(SHAPE))
        stage.restart()
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9))) == ["b"]

    def test_the_node_of_a_worker_that_was_given_up_gets_none_before_there_is_evidence_of_its_end(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        stage.say(stage.wanted(SHAPE))
        (worker_id,) = stage.ordered()
        stage.say(stage.started(worker_id))
        stage.move(worker_id, WorkerState.GONE)  # its lease ran out in silence
        stage.restart()
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9, seen=0))) == ["b"]
        assert [adopt.worker_id for adopt in stage.adopts] == [worker_id]
        assert placed(stage.say(stage.exited(worker_id), stage.wanted(*[SHAPE] * 9))) == ["a"]

    def test_of_several_that_are_gone_from_a_node_the_last_may_run_on(self) -> None:
        stage = on_nodes(node("a"))
        for number in (1, 2):
            stage.now_s += 1.0
            stage.say(stage.wanted(SHAPE))
            worker_id = stage.ordered()[-1]
            stage.say(stage.started(worker_id, f"host:boot:{number}:1"))
            stage.gone(worker_id) if number == 1 else stage.move(worker_id, WorkerState.GONE)
        _, second = stage.ordered()
        stage.restart()
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9, seen=0))) == []
        assert [adopt.worker_id for adopt in stage.adopts] == [second]
        assert placed(stage.say(stage.exited(second), stage.wanted(*[SHAPE] * 9))) == ["a"]

    def test_what_a_new_leader_hears_of_one_long_gone_frees_no_node_on_which_another_stands(self) -> None:
        stage = on_nodes(node("a"))
        for number in (1, 2):
            stage.say(stage.wanted(SHAPE))
            worker_id = stage.ordered()[-1]
            stage.say(stage.started(worker_id, f"host:boot:{number}:1"))
            if number == 1:
                stage.gone(worker_id)
        first, second = stage.ordered()
        stage.restart()
        stage.say(stage.exited(first))
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9))) == []
        assert [adopt.worker_id for adopt in stage.adopts] == [second]

    @pytest.mark.parametrize("state", ["cordoned", "tainted", "not ready", "stale"])
    def test_a_node_that_is_not_ready_offers_nothing(self, state: str) -> None:
        stage = on_nodes(node("a", state=state), node("b"))
        assert placed(stage.say(stage.wanted(*[SHAPE] * 9))) == ["b"]

    def test_the_smallest_node_of_the_preferred_type_is_taken_and_none_with_cards_without_need(self) -> None:
        nodes = (node("a", 4, "A100"), node("b", 1, "A100"), node("c", 1, "H100"), node("d"))
        preferring = Shape(cpu_milli=100, memory_mib=10, gpu_count=1, gpu_types=("H100", "A100"))
        taken = [on_nodes(*nodes) for _ in range(3)]
        found = [placed(one.say(one.wanted(shape))) for one, shape in zip(taken, (CARD, preferring, SHAPE))]
        assert found == [["b"], ["c"], ["d"]]

    def test_labels_and_shares_of_cards_are_heeded(self) -> None:
        stage = on_nodes(node("a", 1, "A100"), node("b", 1, "A100", zone="z"))
        labelled = Shape(cpu_milli=100, memory_mib=10, labels=(("zone", "z"),))
        share = Shape(cpu_milli=100, memory_mib=10, gpu_count=1, gpu_milli=500)
        assert placed(stage.say(stage.wanted(labelled, share))) == ["b"]


class TestGangs:
    GANG = GangWanted("g", nodes=("a", "b"))

    def test_all_workers_of_a_gang_are_ordered_in_one_plan(self) -> None:
        stage = on_nodes(node("a"), node("b"), node("c"))
        asked = stage.guarded(stage.decide_once([stage.wanted(gangs=(self.GANG,))]))
        assert placed(stage.decide_once(asked)) == ["a", "b"]
        assert {row.gang_id for row in stage.truth.tables.workers.values()} == {"g"}

    def test_none_is_ordered_while_one_of_its_nodes_is_taken(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        stage.say(stage.wanted(SHAPE))
        sent = stage.say(stage.wanted(gangs=(self.GANG,)))
        why = "only 1 of the 2 nodes that a gang lacks are free."
        assert (placed(sent), held(sent)["g"]) == ([], (HoldKind.MAXIMUM, why))
        sent = stage.gone(stage.ordered()[0])
        assert (placed(sent), held(sent)["g"]) == (["a", "b"], None)

    def test_a_pool_whose_free_nodes_a_gang_is_to_have_stays_held_for_others_until_that_is_over(self) -> None:
        """Who was told so asks another pool, and takes its wish back here: told at once that there is room, it came
        back, and left again, without end.
        """
        stage = on_nodes(node("a"), node("b"), node("c", state="cordoned"), guard=GuardSettings(pending=0))
        gang = GangWanted("g", ("a", "b"))
        assert held(stage.say(stage.wanted(SHAPE, gangs=(gang,))))[""] == (
            HoldKind.MAXIMUM,
            "none of its 3 nodes can take another worker.",
        )
        assert "" not in held(stage.say(stage.wanted(gangs=(gang,))))
        assert held(stage.say(stage.wanted()))[""] is None

    def test_a_gang_that_is_wished_again_is_ordered_once(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        for _ in range(3):
            stage.say(stage.wanted(gangs=(self.GANG,)))
        assert len(stage.ordered()) == 2

    def test_what_a_gang_lost_before_it_was_together_is_ordered_again(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        stage.say(stage.wanted(gangs=(self.GANG,)))
        stage.gone(stage.ordered()[1])
        assert placed(stage.say(stage.wanted(gangs=(self.GANG,)))) == ["b"]

    def test_workers_without_nodes_come_together_too(self) -> None:
        stage = Stage(max_workers=3)
        sent = stage.say(stage.wanted(gangs=(GangWanted("g", workers=3),)))
        assert len(sent.of(scheduling.WorkerOrdered)) == 3

    def test_a_gang_that_is_larger_than_the_pool_is_told_so(self) -> None:
        stage = Stage(max_workers=3)
        sent = stage.say(stage.wanted(gangs=(GangWanted("g", workers=4),)))
        assert held(sent)["g"] == (HoldKind.MAXIMUM, "a gang of 4 workers is more than its maximum of 3.")
        assert stage.starts == []

    def test_one_that_has_no_room_left_waits_whole(self) -> None:
        stage = Stage(max_workers=3)
        stage.say(stage.wanted(SHAPE))
        sent = stage.say(stage.wanted(gangs=(GangWanted("g", workers=3),)))
        assert held(sent)["g"] == (HoldKind.MAXIMUM, "a gang lacks 3 workers, and it may have 2 more.")
        assert len(stage.starts) == 1

    def test_a_late_answer_is_not_taken_for_that_to_another_question(self) -> None:
        stage = on_nodes(node("a"), node("b"), node("c"), guard=GuardSettings(pending=0))
        stage.say(stage.wanted(gangs=(self.GANG,)))
        stage.say(stage.wanted(gangs=(GangWanted("g", nodes=("a", "b", "c")),)))
        late = stage.say(Letter(scheduling.GuardAdmits(key="g/1"), source="guard"))
        assert late.of(scheduling.WorkerOrdered) == []
        assert late.of(scheduling.GuardForgets) == [scheduling.GuardForgets(pool="p", key="g/1")]
        assert (
            len(stage.say(Letter(scheduling.GuardAdmits(key="g/2"), source="guard")).of(scheduling.WorkerOrdered)) == 3
        )

    def test_one_that_is_given_back_is_not_ordered_any_more(self) -> None:
        stage = on_nodes(node("a"), node("b"), guard=GuardSettings(pending=0))
        stage.say(stage.wanted(gangs=(self.GANG,)))
        sent = stage.say(given_back("g"))
        assert sent.of(scheduling.GuardForgets) == [scheduling.GuardForgets(pool="p", key="g/1")]
        assert stage.say(Letter(scheduling.GuardAdmits(key="g/1"), source="guard")).of(scheduling.WorkerOrdered) == []

    def test_its_workers_are_like_any_others_then(self) -> None:
        stage = on_nodes(node("a"), node("b"))
        stage.say(stage.wanted(gangs=(self.GANG,)))
        stage.say(given_back("g"))
        assert [order.gang_id for order in map(stage.policy.book.end, stage.ordered()) if order] == ["", ""]

    def test_the_failure_of_all_of_them_is_one_failure(self) -> None:
        stage = Stage(max_workers=9)
        stage.say(stage.wanted(gangs=(GangWanted("g", workers=8),)))
        stage.now_s += 1.0
        for worker_id in stage.ordered():
            stage.gone(worker_id, expected=False)
        stage.say(stage.wanted(gangs=(GangWanted("g", workers=8),)))
        assert len(stage.starts) == 16


def given_back(gang_id: str) -> Letter:
    return Letter(scheduling.GangGivenBack(gang_id=gang_id, why="too late"), source="scheduler", target="pool/p")


def free(stage: Stage, cpu_milli: int) -> Letter:
    """The scheduler says what is free; it has heard of each order so far."""
    message = scheduling.RoomFree(pool="p", free=Amount(cpu_milli, 9999, 0), orders_seen=len(stage.ordered()))
    return Letter(message, source="scheduler", target="pool/p")


class TestKept:
    def test_so_much_is_kept_free_as_the_scheduler_does_not_say_is_free(self) -> None:
        settings = PoolSettings(name="p", worker=SIZE, max_workers=9, keep_free=Amount(cpu_milli=3000))
        stage = Stage(settings=settings)
        stage.say()
        assert len(stage.starts) == 2
        stage.say(free(stage, 4000))
        assert len(stage.starts) == 2
        stage.say(free(stage, 1000))
        assert len(stage.starts) == 3

    def test_what_is_on_its_way_counts_as_free(self) -> None:
        settings = PoolSettings(name="p", worker=SIZE, max_workers=9, keep_free=Amount(cpu_milli=3000))
        stage = Stage(settings=settings)
        stage.say()
        stage.say(free(stage, 0))
        assert len(stage.starts) == 4
        stage.tick(1.0)
        assert len(stage.starts) == 4

    def test_cards_are_kept_free_on_nodes_that_have_some(self) -> None:
        stage = on_nodes(node("a"), node("b", 2, "A100"), node("c", 2, "A100"), keep_free=Amount(gpu_milli=3000))
        assert placed(stage.say()) == ["b", "c"]

    def test_never_more_than_the_maximum(self) -> None:
        settings = PoolSettings(name="p", worker=SIZE, max_workers=2, keep_free=Amount(cpu_milli=99_000))
        stage = Stage(settings=settings)
        stage.say()
        assert len(stage.starts) == 2


class TestGuarded:
    def test_what_the_guard_holds_is_told_and_goes_out_later(self) -> None:
        stage = Stage(max_workers=5, guard=GuardSettings(pending=2))
        sent = stage.say(stage.wanted(*[SHAPE] * 8))
        assert len(stage.starts) == 2
        kind, why = held(sent)[""] or (None, "")
        assert kind is HoldKind.GUARD
        assert "2 of its workers are pending, and the limit is 2" in why
        sent = stage.say(*stage.arrived(*stage.ordered()), stage.wanted(*[SHAPE] * 4))
        assert (len(stage.starts), held(sent)) == (4, {"": None})

    def test_a_gang_that_is_held_says_so_for_itself(self) -> None:
        stage = Stage(max_workers=9, guard=GuardSettings(pending=4))
        stage.say(stage.wanted(SHAPE))
        sent = stage.say(stage.wanted(gangs=(GangWanted("g", workers=5),)))
        kind, why = held(sent)["g"] or (None, "")
        assert kind is HoldKind.GUARD
        assert "1 of its workers are pending" in why
        sent = stage.say(*stage.arrived(*stage.ordered()))
        assert len(sent.of(scheduling.WorkerOrdered)) == 5

    def test_a_gang_larger_than_the_limit_goes_when_nothing_else_is_pending(self) -> None:
        stage = Stage(max_workers=9, guard=GuardSettings(pending=2))
        stage.say(stage.wanted(SHAPE))
        stage.say(stage.wanted(gangs=(GangWanted("g", workers=4),)))
        assert len(stage.ordered()) == 1
        stage.gone(stage.ordered()[0])
        assert len(stage.ordered()) == 5

    def test_a_gang_keeps_its_place_at_the_guard_while_others_are_ordered(self) -> None:
        gang = GangWanted("g", workers=4)
        stage = Stage(max_workers=9, guard=GuardSettings(pending=2))
        stage.say(stage.wanted(SHAPE))
        asked = stage.decide_once([stage.wanted(SHAPE, gangs=(gang,), seen=1)])
        answers = stage.guarded(asked)  # the gang is held, and the other after it
        stage.decide_once(answers)
        sent = stage.say(stage.wanted(SHAPE, SHAPE, gangs=(gang,), seen=0))  # a word that is older than the last order
        assert sent.of(scheduling.GuardForgets) == []

    def test_a_lost_question_is_asked_again(self) -> None:
        stage = Stage()
        stage.decide_once([stage.wanted(SHAPE)])  # the guard never hears of it
        assert stage.tick(4.0).of(scheduling.WorkerOrdered) == []
        assert len(stage.tick(2.0).of(scheduling.WorkerOrdered)) == 1

    def test_what_is_not_wanted_any_more_is_not_asked_any_more(self) -> None:
        stage = Stage(guard=GuardSettings(pending=0))
        sent = stage.say(stage.wanted(SHAPE))
        (question,) = sent.of(scheduling.AskGuard)
        sent = stage.say(stage.wanted())
        assert [forgets.key for forgets in sent.of(scheduling.GuardForgets)] == [question.key]
        assert held(sent) == {"": None}

    def test_a_pool_that_begins_anew_takes_back_what_it_asked_before(self) -> None:
        stage = Stage(guard=GuardSettings(pending=1))
        stage.decide_once(stage.guarded(stage.decide_once([stage.wanted(SHAPE)]))[:0])  # admitted, and never heard of
        stage.begin_pool()
        assert len(stage.say(stage.wanted(SHAPE)).of(scheduling.WorkerOrdered)) == 1

    def test_the_guard_hears_of_pending_workers_before_their_question_is_over(self) -> None:
        stage = Stage()
        to_guard = [type(one.message).__name__ for one in stage.say(stage.wanted(SHAPE)) if one.target == "guard"]
        assert to_guard[-2:] == ["WorkersPending", "GuardForgets"]


class TestRetiring:
    def test_one_that_is_no_more_is_shown_no_more(self) -> None:
        """What it told of itself after that it had ended would be shown for ever."""
        stage = Stage()
        stage.settings = retiring("p")
        stage.begin_pool()
        sent = [*stage.say(), *stage.tick(6.0)]
        assert [type(one.message) for one in sent if one.target == "pools"] == [scheduling.PoolRetired]

    def test_its_workers_are_drained_as_they_come_and_the_last_one_ends_it(self) -> None:
        stage = Stage(max_workers=2)
        stage.say(stage.wanted(*[SHAPE] * 4))
        first, second = stage.ordered()
        stage.say(*stage.arrived(first))
        stage.settings = retiring("p")
        stage.begin_pool()
        drains = stage.say(stage.wanted(SHAPE)).of(TellWorkers)
        assert drains == [TellWorkers(worker_ids=(first,), wish=WorkerWish.DRAIN)]
        assert stage.say(*stage.arrived(second)).only(TellWorkers).worker_ids == (first, second)
        assert len(stage.tick(6.0).of(TellWorkers)) == 1
        assert stage.gone(first).of(scheduling.PoolRetired) == []
        retired = [send.target for send in stage.gone(second) if isinstance(send.message, scheduling.PoolRetired)]
        assert retired == ["scheduler", "pools"]
        assert len(stage.starts) == 2
        assert stage.truth.worker_states() == {first: WorkerState.GONE, second: WorkerState.GONE}
