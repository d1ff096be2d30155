"""A shared cluster that is taken back: what others have there ends its calls, and no word of theirs names its nodes."""

from __future__ import annotations

import pytest
from levers9_test_deciding import SIZE, Sent
from levers9_test_scheduler import Stage, gone, held, placed

from levers9.model.resources import Shape
from levers9.wire import scheduling
from levers9.wire.letter import Letter


def declare(stage: Stage, serves: str = "", owner: str = "a") -> Sent:
    message = scheduling.PoolDeclared(pool="default", size=SIZE, serves=serves, owner=owner, keep_workers=9)
    return stage.say(Letter(message, source="pool/default", target="scheduler"))


def yielded(sent: Sent) -> list[tuple[str, ...]]:
    return [message.container_ids for message in sent.of(scheduling.YieldContainers)]


@pytest.fixture
def stage() -> Stage:
    """One container of workspace w is ready, another one was told to start."""
    stage = Stage()
    declare(stage)
    stage.running("ready")
    assert placed(stage.say(stage.request("starts"))) == [("starts", "one")]
    return stage


def test_what_runs_and_what_starts_there_of_others_takes_no_new_call(stage: Stage) -> None:
    sent = declare(stage, serves="a")
    assert yielded(sent) == [("ready", "starts")]
    assert "another workspace" in sent.only(scheduling.YieldContainers).why
    assert not sent.of(scheduling.StopContainer)


def test_what_its_own_workspace_has_there_goes_on(stage: Stage) -> None:
    assert yielded(declare(stage, serves="w")) == []


def test_a_request_of_others_that_waits_is_placed_there_no_more(stage: Stage) -> None:
    declare(stage, serves="a")
    tiny = Shape(cpu_milli=1, memory_mib=1)
    stage.say(stage.release("starts"), stage.ended("starts"))
    assert placed(stage.say(stage.request("late", stub="tiny", shape=tiny))) == []
    assert placed(declare(stage)) == [("late", "one")]


def test_a_new_leader_sees_to_it_again(stage: Stage) -> None:
    declare(stage, serves="a")
    stage.restart()
    stage.say(stage.report(held("ready"), held("starts")))
    assert yielded(declare(stage, serves="a")) == [("ready", "starts")]


def test_and_does_so_by_itself_where_it_knows_of_the_pool_beforehand(stage: Stage) -> None:
    message = scheduling.PoolDeclared(pool="default", size=SIZE, serves="a", owner="a")
    stage.arguments = (*stage.arguments[:2], (message,))
    stage.restart()
    assert yielded(stage.say()) == [("ready", "starts")]


@pytest.mark.parametrize(("owner", "names"), [("", True), ("w", True), ("a", False)])
def test_how_a_worker_ended_is_told_to_the_owner_of_its_nodes_only(owner: str, names: bool) -> None:
    stage = Stage()
    declare(stage, owner=owner)
    stage.running("c")
    evidence = scheduling.WorkerGone(worker_id="one", evidence="its node secret-7 was deleted")
    sent = stage.say(Letter(evidence, source="pool/default", target="scheduler"))
    assert list(gone(sent)) == ["c"]
    why = sent.only(scheduling.ContainerGone).why
    assert why.startswith("worker one is gone")
    assert ("secret-7" in why) is names
    rows = [row.why for row in stage.truth.tables.containers.values()]
    assert ("secret-7" in "".join(rows)) is names
