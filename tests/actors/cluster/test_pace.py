"""How often a cluster is listened to: a cluster that always talks does not keep the leader from others."""

from __future__ import annotations

from levers9_test_cluster import BEN, Stage, a_node

from levers9.actors.cluster.pace import AHEAD_S, HEARD_PER_S
from levers9.wire import cluster as said

NODES = 2_000
REPORTS = tuple(tuple(a_node(f"n{number}", cards) for number in range(NODES)) for cards in (1, 2, 3))


def talk(stage: Stage, cluster_id: str, times: int) -> int:
    """So many reports at once, each with other nodes; returns how many were heard."""
    heard = 0
    for number in range(times):
        heard += len(stage.reports(cluster_id, *REPORTS[number % 2]).of(said.NodesKnown))
    return heard


def test_as_much_is_heard_at_once_as_is_due_and_the_newest_of_the_rest_when_its_turn_comes() -> None:
    stage = Stage()
    cluster_id = stage.ready()
    due = int(AHEAD_S * HEARD_PER_S / NODES)
    heard = talk(stage, cluster_id, 2 * due)
    assert due <= heard <= due + 1
    newest = stage.report(cluster_id, *REPORTS[2], sequence=1_000)
    stage.agent(cluster_id, newest)
    (known,) = stage.tick(1.0).of(said.NodesKnown)
    assert {offer.capacity.gpu_count for offer in known.offers} == {3}
    assert stage.tick(1.0).of(said.NodesKnown) == []


def test_one_that_came_late_does_not_take_the_place_of_the_newest() -> None:
    stage = Stage()
    cluster_id = stage.ready()
    talk(stage, cluster_id, 2 * int(AHEAD_S * HEARD_PER_S / NODES))
    stage.agent(cluster_id, stage.report(cluster_id, *REPORTS[2], sequence=1_000))
    stage.now_s += 10.0
    assert stage.agent(cluster_id, stage.report(cluster_id, *REPORTS[0], sequence=999)).of(said.NodesKnown) == []
    (known,) = stage.tick(0.0).of(said.NodesKnown)
    assert {offer.capacity.gpu_count for offer in known.offers} == {3}


def test_others_are_heard_meanwhile() -> None:
    stage = Stage()
    cluster_id = stage.ready()
    talk(stage, cluster_id, 2 * int(AHEAD_S * HEARD_PER_S / NODES))
    other = stage.joins(BEN).cluster.cluster_id
    assert len(stage.reports(other, a_node("n1")).of(said.NodesKnown)) == 1


def test_what_waits_for_its_turn_is_forgotten_with_the_life_that_said_it() -> None:
    stage = Stage()
    cluster_id = stage.ready()
    talk(stage, cluster_id, 2 * int(AHEAD_S * HEARD_PER_S / NODES))
    stage.joins()
    assert stage.tick(5.0).of(said.NodesKnown) == []
