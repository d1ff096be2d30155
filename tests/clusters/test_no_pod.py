"""A Job of an attached cluster that gets no pod at all, since a quota of its namespace admits none."""

from __future__ import annotations

import pytest

from levers9.kube.face import Body, Kind
from levers9.kube.objects import Other

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Calls

pytestmark = pytest.mark.slow
QUOTAS = Kind(group="", version="v1", plural="resourcequotas", singular="ResourceQuota", type=Other)


def test_a_job_that_gets_no_pod_is_told_and_its_work_runs_once_there_is_room(attached: Attached, calls: Calls) -> None:
    body: Body = {"metadata": {"name": "no-more"}, "spec": {"hard": {"pods": "1"}}}
    attached.kube(lambda kube: kube.create(QUOTAS, body, attached.name))
    call = calls.submit("call")
    words = "not admitted (quota or webhook)"
    wait_until(lambda: words in " ".join(attached.cluster.waits), "the list says why", WITHIN_S)
    wait_until(lambda: words in attached.why(call.task_id), "so does `task why`", WITHIN_S)
    assert (attached.cluster.workers, attached.cluster.pending, attached.pods()) == (1, 1, ())
    attached.kube(lambda kube: kube.delete(QUOTAS, "no-more", attached.name))
    call.begins(within_s=2 * WITHIN_S)
    assert call.ends()[0] == 1
