"""Leaving a cluster when answers get lost, and when an earlier leave left something behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from levers9.cli.cluster_leaving import APART_S, TRIES, detach, strangers
from levers9.errors import NOT_FOUND, BrokenByPeer, LeversError, Refused
from levers9.kube import kinds
from levers9.kube.memory import MemoryCluster

LOST = (
    Refused("No answer.", code="deadline"),
    BrokenByPeer("It went away."),
    Refused("Nobody leads.", code="not_leader"),
)


def answering(*errors: LeversError | None) -> tuple[Callable[[], None], list[LeversError | None]]:
    """What is asked, and the answers that are left: None is a good one."""
    left = list(errors)

    def ask() -> None:
        error = left.pop(0)
        if error is not None:
            raise error

    return ask, left


@pytest.mark.parametrize("last", [None, Refused("There is no cluster.", code=NOT_FOUND)])
def test_it_is_asked_again_until_it_is_answered_or_the_cluster_is_not_there(last: LeversError | None) -> None:
    ask, left = answering(*LOST, last)
    waited: list[float] = []
    detach(ask, waited.append)
    assert (left, waited) == ([], [APART_S] * len(LOST))


@pytest.mark.parametrize("error", LOST)
def test_and_not_for_ever(error: LeversError) -> None:
    ask, left = answering(*[error] * TRIES, None)
    with pytest.raises(type(error)):
        detach(ask, lambda _: None)
    assert left == [None]


def test_what_is_refused_is_not_asked_again() -> None:
    ask, left = answering(Refused("It is shared.", code="forbidden"), None)
    with pytest.raises(Refused, match="It is shared"):
        detach(ask, lambda _: None)
    assert left == [None]


async def test_agents_that_the_control_plane_does_not_know_are_told_with_how_to_delete_them() -> None:
    kube = MemoryCluster(namespaces=("a", "b"))
    for namespace, cluster_id in (("a", "cluster-1"), ("b", "cluster-2")):
        labels = {"app.kubernetes.io/name": "levers9-agent", "levers9.dev/cluster": cluster_id}
        metadata = {"name": "levers9-agent", "namespace": namespace, "labels": labels}
        await kube.create(kinds.DEPLOYMENTS, {"metadata": metadata}, namespace)
    (how,) = await strangers(kube, ["cluster-1"])
    assert "kubectl delete" in how
    assert "-n b -l levers9.dev/cluster=cluster-2" in how
