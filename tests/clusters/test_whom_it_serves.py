"""Whom an attached cluster serves and what they see of it: its own workspace, another one, and nobody once it left."""

from __future__ import annotations

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Call, Calls

pytestmark = pytest.mark.slow


def says(attached: Attached, call: Call, words: str, token: str = "") -> None:
    """Wait until `task why` has these words."""
    try:
        wait_until(lambda: words in attached.why(call.task_id, token), f"why says {words!r}", WITHIN_S)
    except AssertionError as error:
        raise AssertionError(f"{error}, but {attached.why(call.task_id, token)!r}") from error


def test_shared_it_takes_others_work_on_new_workers_and_taken_back_none_of_it(
    attached: Attached, calls: Calls, guests: Calls, guest: str
) -> None:
    own = calls.submit("own")
    node = own.begins()
    refused = guests.submit("refused")
    assert "have one shared" in str(refused.told["error"])
    assert node not in str(refused.told)
    assert attached.seen_by(guest) == {}
    attached.share(shared=True)
    theirs = guests.submit("theirs")
    assert theirs.begins() != node
    shown = attached.seen_by(guest)[attached.name]
    assert ([one.name for one in shown.nodes], shown.shared, shown.namespace) == (["", ""], True, "")
    attached.share(shared=False)
    late = guests.submit("late")
    assert attached.seen_by(guest) == {}
    assert theirs.ends()[0] == 1
    assert calls.submit("more").ends()[0] == 1
    assert late.attempts == []
    assert own.ends() == (1, node, 1)


def test_an_image_that_cannot_be_pulled_is_named_to_its_owner_alone(
    attached: Attached, calls: Calls, lab: RunningLab, guests: Calls, guest: str
) -> None:
    for node in lab.nodes:
        lab.verb("fail-pull", node)
    own = calls.submit("own")
    wait_until(lambda: "cannot be pulled" in " ".join(attached.cluster.waits), "the list says why", WITHIN_S)
    assert "The image levers9:" in " ".join(attached.cluster.waits)
    says(attached, own, "The image levers9:")
    attached.share(shared=True)
    theirs = guests.submit("theirs")
    says(attached, theirs, "its owner can see why", guest)
    shown = attached.seen_by(guest)[attached.name]
    told = f"{attached.why(theirs.task_id, guest)} {shown}"
    assert "has not started" in " ".join(shown.waits)
    says(attached, own, "The image levers9:")
    assert [word for word in ("levers9:", "tray-", "pulled") if word in told] == []
    for node in lab.nodes:
        lab.verb("pull-again", node)
    assert {own.begins(), theirs.begins()} <= set(lab.nodes)


def test_what_runs_on_a_cluster_that_is_left_waits_and_is_told_why(attached: Attached, calls: Calls) -> None:
    call = calls.submit("call")
    call.begins()
    (worker,) = attached.worker_jobs()
    machines = {one.token_id for one in attached.tokens() if one.active and one.kind in ("agent", "worker_private")}
    attached.leave()
    assert attached.worker_jobs() == []
    wait_until(lambda: attached.processes(worker) == [], "its workers end", WITHIN_S)
    wait_until(lambda: attached.agent_pod() == "", "its agent ends", WITHIN_S)
    assert [one for one in attached.tokens() if one.active and one.token_id in machines] == []
    says(attached, call, "cluster join")
    assert len(call.attempts) == 1
    attached.join()
    call.begins(2)
    assert call.ends()[0] == 2
