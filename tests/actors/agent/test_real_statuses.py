"""What a real API server keeps of a pod's status is read, and counts by the rule (reference, section 5.1)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import trio

from levers9.actors.agent.requests import Uses
from levers9.actors.agent.seen_pods import SEEN_PODS
from levers9.kube.client import open_kube
from levers9.kube.kinds import PODS
from levers9.lab.binaries import missing
from levers9.model.ids import Chance

from ...kube.api_server import ApiServer, running_api_server

pytestmark = pytest.mark.slow
Plain = dict[str, object]
DEFERRED, INFEASIBLE = (
    {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}
    for reason in ("Deferred", "Infeasible")
)


def asked(cpu: str, gib: int) -> Plain:
    return {"requests": {"cpu": cpu, "memory": f"{gib}Gi"}}


def given(cpu: str, gib: int) -> Plain:
    """The status of a pod that was given so much as a whole."""
    return {"resources": asked(cpu, gib), "allocatedResources": {"cpu": cpu, "memory": f"{gib}Gi"}}


def given_to_container(cpu: str, gib: int) -> Plain:
    there = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0, **given(cpu, gib)}
    return {"containerStatuses": [there]}


def claimed(cpu: str, gib: int) -> Plain:
    resources = {"cpu": cpu, "memory": f"{gib}Gi"}
    claim = {"resourceClaimName": "cores", "containers": ["main"], "resources": resources}
    return {"nodeAllocatableResourceClaimStatuses": [claim]}


class Case(msgspec.Struct):
    """What a pod asks for, in its container and as a whole, what its status says, and what it takes."""

    name: str
    asks: Plain
    status: Plain
    cpu_milli: int
    gib: int
    whole: Plain = {}

    @property
    def claims(self) -> bool:
        """Whether a part of it is claimed."""
        return "nodeAllocatableResourceClaimStatuses" in self.status


CASES = (
    Case("claimed", asked("1", 1), claimed("1500m", 2), 2500, 3),
    Case("claimed-within-the-whole", asked("1", 1), claimed("1500m", 2), 6000, 8, whole=asked("6", 8)),
    Case("larger-later", asked("6", 1), given_to_container("2", 3) | DEFERRED, 6000, 3),
    Case("never", asked("6", 1), given_to_container("2", 3) | INFEASIBLE, 2000, 3),
    Case("never-in-older-words", asked("6", 1), given_to_container("2", 3) | {"resize": "Infeasible"}, 2000, 3),
    Case("whole-larger-later", asked("1", 1), given("2", 9) | DEFERRED, 6000, 9, whole=asked("6", 8)),
    Case("whole-never", asked("1", 1), given("2", 4) | INFEASIBLE, 2000, 4, whole=asked("6", 8)),
)


@pytest.fixture(scope="module")
def keeping_claims() -> Iterator[ApiServer]:
    """An API server that keeps what claims gave to pods, which by itself it does not yet."""
    if reason := missing():
        pytest.skip(reason)
    with running_api_server("DRANodeAllocatableResources=true") as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_status_counts_as_the_rule_says(keeping_claims: ApiServer, case: Case) -> None:
    spec: Plain = {"nodeName": "n1", "containers": [{"name": "main", "image": "x", "resources": case.asks}]}
    spec |= {"resources": case.whole} if case.whole else {}
    spec |= {"resourceClaims": [{"name": "cores", "resourceClaimName": "cores"}]} if case.claims else {}
    body = {"metadata": {"name": case.name}, "spec": spec}
    status = {"phase": "Running", **case.status}
    with trio.fail_after(60):
        async with open_kube(keeping_claims.endpoint(), Chance()) as kube:
            await kube.create(PODS, body, "default")
            await kube.patch(PODS, case.name, {"status": status}, "default", subresource="status")
            pod = await kube.get(SEEN_PODS, case.name, "default")
    assert pod is not None
    assert pod.uses == Uses(cpu_milli=case.cpu_milli, memory_bytes=case.gib << 30, claims=case.claims)
