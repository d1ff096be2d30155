from __future__ import annotations

from levers9.wire.codec import MESSAGES
from levers9.wire.waiting import BRAIN, PEERS, blocking_edges, circle

NOBODY: frozenset[str] = frozenset()


def test_no_circle_of_actors_waits_for_each_other() -> None:
    assert circle(blocking_edges(MESSAGES, BRAIN, PEERS)) == ()


def test_without_the_rule_actors_of_one_process_would_wait_in_a_circle() -> None:
    """The check can fail: were mailboxes of one process waited for, two actors that talk would stand still."""
    assert set(circle(blocking_edges(MESSAGES, NOBODY, PEERS))) & BRAIN


def test_were_gateways_to_wait_for_peers_there_would_be_a_circle() -> None:
    assert circle(blocking_edges(MESSAGES, BRAIN, NOBODY)) != ()


def test_backpressure_reaches_those_who_send_into_the_brain() -> None:
    edges = blocking_edges(MESSAGES, BRAIN, PEERS)
    assert "tasks" in edges["client"]
    assert {"scheduler", "tasks"} <= edges["worker"]
    assert not edges.keys() & BRAIN


def test_every_actor_that_talks_inside_the_brain_is_known_to_be_there() -> None:
    known = BRAIN | PEERS | {"watcher", "child"}
    assert {message.sender for message in MESSAGES} <= known
    assert {message.receiver for message in MESSAGES} <= known


def test_a_circle_is_named_from_the_first_of_its_names_on() -> None:
    edges = {"a": frozenset("b"), "b": frozenset("cx"), "c": frozenset("b"), "x": frozenset("y")}
    assert circle(edges) == ("b", "c")
    assert circle({"a": frozenset("bc"), "b": frozenset("d"), "c": frozenset("d")}) == ()
    assert circle({"a": frozenset("a")}) == ("a",)
