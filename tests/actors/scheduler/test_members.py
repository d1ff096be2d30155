"""Members of gangs, as `tasks` and workers know them: started by rank, replaced, ended with the last of their gang."""

from __future__ import annotations

import pytest
from levers9_test_deciding import Sent, spec_of
from levers9_test_scheduler import Stage, gone, placed

from levers9.model.figures import GANG_READY_S, REPORT_WAIT_S
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, End
from levers9.store import operations as ops
from levers9.wire import scheduling
from levers9.wire.letter import Letter

SPEC = spec_of("g", nodes=2)
ONE = Capacity(cpu_milli=1000, memory_mib=1000)


def ask(stage: Stage, *container_ids: str, ranks: tuple[int, ...] = ()) -> Letter:
    """Rows first, then the request, as `tasks` does it."""
    rows = tuple(
        ops.ContainerRow(
            container_id=container_id,
            stub_id="g",
            workspace_id="w",
            state=ContainerState.REQUESTED,
            requested_at_s=stage.now_s,
            gang_id="gang",
            rank=rank,
        )
        for rank, container_id in zip(ranks or range(2), container_ids, strict=True)
    )
    stub = ops.StubRow(stub_id="g", workspace_id="w", spec=SPEC, created_at_s=0.0)
    stage.truth.commit([ops.PutStub(stub=stub), ops.PutContainers(containers=rows)])
    message = scheduling.RequestContainers(
        stub_id="g", workspace_id="w", spec=SPEC, container_ids=container_ids, gang_id="gang", ranks=ranks
    )
    return Letter(message, source="tasks", target="scheduler")


def gang() -> tuple[Stage, Sent]:
    """One member on each of two workers, which have room for one."""
    stage = Stage()
    stage.worker("one", size=ONE)
    stage.worker("two", size=ONE)
    return stage, stage.say(ask(stage, "a", "b"))


def home(sent: Sent) -> dict[str, str]:
    return dict(placed(sent))


def test_each_member_is_started_with_its_rank_and_what_it_says_of_itself_is_told() -> None:
    stage, sent = gang()
    ranks = {one.container_id: (one.gang_id, one.rank, one.world_size) for one in sent.of(scheduling.StartContainer)}
    assert ranks == {"a": ("gang", 0, 2), "b": ("gang", 1, 2)}
    ready = scheduling.ContainerReady(container_id="a", window=1, address="host:7000")
    told = stage.say(stage.of_worker(ready, home(sent)["a"])).only(scheduling.ContainerAvailable)
    assert told.address == "host:7000"


def test_a_member_that_was_lost_gets_room_again_beside_the_other() -> None:
    stage, sent = gang()
    assert gone(stage.say(stage.ended("b", home(sent)["b"]))) == {"b": End.ERROR}
    sent = stage.say(ask(stage, "c", ranks=(1,)))
    assert [one.rank for one in sent.of(scheduling.StartContainer)] == [1]


def test_a_replacement_for_a_gang_of_which_nothing_is_left_ends_at_once() -> None:
    stage, sent = gang()
    homes = home(sent)
    stage.say(stage.ended("a", homes["a"]), stage.ended("b", homes["b"]))
    assert gone(stage.say(ask(stage, "c", ranks=(1,)))) == {"c": End.DISCONNECTED}
    assert stage.truth.container_states()["c"] is ContainerState.ENDED


@pytest.mark.parametrize("restarted", [False, True])
def test_a_replacement_that_still_waits_ends_with_the_last_of_its_gang(restarted: bool) -> None:
    stage, sent = gang()
    homes = home(sent)
    stage.say(stage.request("other"))
    stage.say(stage.ended("b", homes["b"]))
    assert home(stage.say(ask(stage, "c", ranks=(1,)))) == {}
    if restarted:
        stage.restart()
    assert gone(stage.say(stage.evidence(homes["a"]))) == {"a": End.DISCONNECTED, "c": End.DISCONNECTED}


def test_replacements_of_whom_an_earlier_leader_never_heard_end_when_nothing_is_left_of_their_gang() -> None:
    stage, sent = gang()
    homes = home(sent)
    stage.say(stage.ended("b", homes["b"]))
    ask(stage, "c", ranks=(1,))
    stage.say(stage.ended("a", homes["a"]))
    stage.restart()
    assert gone(stage.say()) == {"c": End.DISCONNECTED}


def test_a_second_replacement_for_a_rank_ends_and_tasks_hears_of_it() -> None:
    stage, sent = gang()
    assert gone(stage.say(stage.ended("b", home(sent)["b"]))) == {"b": End.ERROR}
    sent = stage.say(ask(stage, "c", ranks=(1,)), ask(stage, "d", ranks=(1,)))
    assert (len(placed(sent)), gone(sent)) == (1, {"d": End.DISCONNECTED})


@pytest.mark.parametrize("restarted", [False, True])
def test_what_makes_room_is_stopped_with_the_word_that_it_does(restarted: bool) -> None:
    stage, sent = gang()
    room = stage.policy.ledger.rooms["a"]
    stage.policy._containers.preempt(room, "others go first")
    (stop,) = stage.say().of(scheduling.StopContainer)
    assert (stop.container_id, stop.preempted) == ("a", True)
    if restarted:
        stage.restart()
    ended = stage.say(stage.ended("a", home(sent)["a"])).only(scheduling.ContainerGone)
    assert ended.preempted


def test_a_worker_that_a_new_leader_has_not_heard_of_is_told_in_words_that_fit_its_name() -> None:
    stage = Stage()
    stage.worker("one", size=ONE)
    stage.restart()
    stage.now_s += REPORT_WAIT_S
    (held,) = stage.say(stage.request("a", shape=Shape(cpu_milli=200, memory_mib=10))).of(scheduling.ContainerHeld)
    assert "one is not reporting yet." in held.why


def half_there(idle_s: float) -> Stage:
    """A gang whose two workers were ordered, of which one has come; idle ones leave after so long."""
    stage = Stage(sizes={"default": ONE})
    declared = scheduling.PoolDeclared(pool="default", size=ONE, max_workers=2, idle_s=idle_s)
    stage.say(Letter(declared, source="pool/default", target="scheduler"))
    stage.say(ask(stage, "a", "b"))
    stage.say(stage.order("one", size=ONE), stage.order("two", size=ONE))
    stage.say(stage.report(worker_id="one", size=ONE))
    return stage


def test_a_worker_that_waits_for_the_others_of_its_gang_is_not_idle() -> None:
    assert half_there(idle_s=1.0).tick(GANG_READY_S - 1.0).of(scheduling.StopWorker) == []


def test_workers_that_a_gang_gives_back_leave_at_once_where_nobody_needs_them() -> None:
    stage = half_there(idle_s=10 * GANG_READY_S)
    assert stage.tick(GANG_READY_S - 1.0).of(scheduling.StopWorker) == []
    stage.tick(1.0)
    sent = stage.tick(1.0)
    sent += stage.say(stage.report(worker_id="two", size=ONE))
    sent += stage.tick(1.0)
    assert [one.worker_id for one in sent.of(scheduling.StopWorker)] == ["one", "two"]


def test_workers_that_a_gang_gives_back_are_kept_as_many_as_the_pool_keeps() -> None:
    stage = half_there(idle_s=10 * GANG_READY_S)
    declared = scheduling.PoolDeclared(pool="default", size=ONE, max_workers=2, keep_workers=1, idle_s=1e6)
    stage.say(Letter(declared, source="pool/default", target="scheduler"))
    stage.tick(GANG_READY_S)
    assert stage.tick(2.0).of(scheduling.StopWorker) == []
