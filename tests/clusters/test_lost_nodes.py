"""Trays of an attached cluster that fall silent: that alone is no evidence of anything, and nothing runs twice."""

from __future__ import annotations

import pytest
from levers9_test_lab import RunningLab, is_ready

from levers9.kube.kinds import NODES

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Call, Calls

pytestmark = pytest.mark.slow
SILENT_S = 30.0  # the lab gives up a silent node after 8 s


def node_of_agent(attached: Attached) -> str:
    """Where the agent runs, who is to tell what becomes of the others."""
    return next(pod.spec.node_name for pod in attached.pods("app.kubernetes.io/name=levers9-agent"))


def begins_beside(attached: Attached, calls: Calls, lab: RunningLab, other: str) -> tuple[Call, str]:
    """A call that has all cards of a node, which is not `other`, and this node."""
    lab.verb("cordon", other)
    wait_until(lambda: attached.node(other).state == "cordoned", f"{other} is told to be cordoned", WITHIN_S)
    call = calls.submit("call", "four")
    node = call.begins()
    lab.verb("uncordon", other)
    assert node != other
    return call, node


def the_worker(attached: Attached) -> str:
    """The one that there is."""
    (worker,) = attached.worker_jobs()
    return worker


def ended(attached: Attached, worker: str) -> str:
    """How a worker ended, once that is known and its Job is gone."""
    wait_until(lambda: attached.gone(worker) != "", f"{worker} has ended", WITHIN_S)
    wait_until(lambda: worker not in attached.worker_jobs(), "its Job is gone", WITHIN_S)
    return attached.gone(worker)


def falls_silent(attached: Attached, node: str) -> None:
    """Wait until it is told that nothing is heard of a node."""
    wait_until(lambda: attached.node(node).state == "not ready", f"{node} is not ready", SILENT_S)


def test_a_tray_without_power_is_believed_dead_when_it_says_so_itself(
    attached: Attached, calls: Calls, lab: RunningLab
) -> None:
    call, node = begins_beside(attached, calls, lab, node_of_agent(attached))
    worker = the_worker(attached)
    lab.verb("power-off", node)
    falls_silent(attached, node)
    other = calls.submit("other", "four")
    assert other.begins() != node
    assert (call.attempts, attached.gone(worker)) == ([(1, node)], "")
    assert worker in attached.worker_jobs()
    lab.verb("power-on", node)
    assert ended(attached, worker)
    assert call.begins(2) == node
    assert call.ends()[0] == 2
    assert other.ends()[0] == 1


def test_a_tray_that_is_cut_off_goes_on_working(attached: Attached, calls: Calls, lab: RunningLab) -> None:
    call, node = begins_beside(attached, calls, lab, node_of_agent(attached))
    worker = the_worker(attached)
    lab.verb("partition", node)
    falls_silent(attached, node)
    assert call.ends() == (1, node, 4)
    lab.verb("heal", node)
    wait_until(lambda: attached.node(node).state == "ready", "it is ready", WITHIN_S)
    assert (the_worker(attached), attached.gone(worker), call.attempts) == (worker, "", [(1, node)])


def test_a_node_that_was_deleted_is_evidence(attached: Attached, calls: Calls, lab: RunningLab) -> None:
    call, node = begins_beside(attached, calls, lab, node_of_agent(attached))
    worker = the_worker(attached)
    lab.verb("power-off", node)
    falls_silent(attached, node)
    assert call.attempts == [(1, node)]
    attached.kube(lambda kube: kube.delete(NODES, node))
    assert "node" in ended(attached, worker)
    assert call.begins(2) != node
    assert [one.name for one in attached.cluster.nodes] == [name for name in lab.nodes if name != node]
    lab.verb("power-on", node)
    assert call.ends()[0] == 2
    wait_until(lambda: len(attached.cluster.nodes) == 2, "it is back", WITHIN_S)


def test_a_tray_without_power_that_had_the_agent_too_is_believed_dead_when_both_are_back(
    attached: Attached, calls: Calls, lab: RunningLab
) -> None:
    (other,) = set(lab.nodes) - {node_of_agent(attached)}
    call, node = begins_beside(attached, calls, lab, other)
    worker = the_worker(attached)
    lab.verb("power-off", node)
    wait_until(
        lambda: not is_ready(attached.kube(lambda kube: kube.get(NODES, node))), f"{node} is not ready", SILENT_S
    )
    assert (call.attempts, attached.gone(worker)) == ([(1, node)], "")
    lab.verb("power-on", node)
    assert ended(attached, worker)
    call.begins(2)
    assert call.ends()[0] == 2
