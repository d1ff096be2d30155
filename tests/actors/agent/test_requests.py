"""What a pod takes of its node is what Kubernetes' own rule says."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levers9_test_agent import pod
from levers9_test_agent_literal import takes

from levers9.actors.agent.accounts import Accounts
from levers9.actors.agent.requests import counts, uses_of
from levers9.kube.objects import Pod
from levers9.model.clusters import CARD_RESOURCES

CPU = st.sampled_from(["0", "1", "100m", "1.5", "1e-1", "250000u", "0.0001"])
MEMORY = st.sampled_from(["0", "1Gi", "400m", "1181116006400m", "128Mi", "1e9", "1E", "3G", "99999999999999999999"])
CARDS = st.sampled_from(["0", "1", "2", "8"])
QUANTITIES = st.fixed_dictionaries(
    {}, optional={"cpu": CPU, "memory": MEMORY, **dict.fromkeys(CARD_RESOURCES, CARDS), "hugepages-2Mi": st.just("4Mi")}
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": QUANTITIES, "limits": QUANTITIES})


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    def containers(prefix: str, least: int, policies: st.SearchStrategy[Any]) -> list[dict[str, Any]]:
        drawn = draw(st.lists(st.tuples(st.none() | RESOURCES, policies), min_size=least, max_size=4))
        return [
            {"name": f"{prefix}{index}", **({"resources": resources} if resources else {}), **policy}
            for index, (resources, policy) in enumerate(drawn)
        ]

    def statuses(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        known = st.fixed_dictionaries({}, optional={"resources": RESOURCES, "allocatedResources": QUANTITIES})
        return [{"name": one["name"], **draw(known)} for one in of if draw(st.booleans())]

    apps = containers("app", 1, st.just({}))
    inits = containers("init", 0, st.sampled_from([{}, {"restartPolicy": "Always"}]))
    spec: dict[str, Any] = {"nodeName": "n1", "containers": apps, "initContainers": inits}
    spec |= draw(st.fixed_dictionaries({}, optional={"overhead": QUANTITIES, "resources": RESOURCES}))
    reason, truth = draw(st.sampled_from(["Infeasible", "Deferred"])), draw(st.sampled_from(["True", "False"]))
    status: dict[str, Any] = {"phase": "Running"}
    if draw(st.booleans()):
        status |= {"containerStatuses": statuses(apps), "initContainerStatuses": statuses(inits)}
        status["conditions"] = [{"type": "PodResizePending", "status": truth, "reason": reason}]
    claimed = st.lists(
        st.fixed_dictionaries({"resourceClaimName": st.just("claim"), "resources": QUANTITIES}), max_size=3
    )
    status |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "resources": RESOURCES,
                "allocatedResources": QUANTITIES,
                "nodeAllocatableResourceClaimStatuses": claimed,
                "resize": st.sampled_from(["Proposed", "InProgress", "Deferred", "Infeasible"]),
            },
        )
    )
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}


@pytest.mark.slow
@given(pods())
@settings(settings.get_profile("property"))
def test_it_is_what_the_literal_rule_says(plain: dict[str, Any]) -> None:
    uses = uses_of(msgspec.convert(plain, Pod))
    assert (uses.cpu_milli, uses.memory_bytes, *uses.cards) == (
        math.ceil(takes(plain, "cpu") * 1000),
        math.ceil(takes(plain, "memory")),
        *(math.ceil(takes(plain, name)) for name in CARD_RESOURCES),
    )
    assert not uses.odd


def test_what_cannot_be_read_counts_as_nothing_and_is_told() -> None:
    uses = uses_of(pod(requests={"cpu": "1KiB", "memory": "-5", "nvidia.com/gpu": "2"}))
    assert (uses.cpu_milli, uses.memory_bytes, uses.cards, uses.odd) == (0, 0, (2, 0), True)


def test_pods_count_from_their_binding_to_their_end() -> None:
    assert counts(pod(phase="Pending"))
    assert not counts(pod(node="", phase="Pending"))
    assert not counts(pod(phase="Succeeded"))
    assert not counts(pod(phase="Failed"))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),  # the pod's UID
        st.sampled_from(["n1", "n2", ""]),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        CARDS,
        st.sampled_from(["put", "remove", "relist"]),
    ),
    max_size=30,
)


@pytest.mark.slow
@given(STEPS)
def test_the_accounts_are_the_sum_of_the_pods_that_count(steps: list[tuple[str, str, str, str, str]]) -> None:
    accounts, there = Accounts(), dict[str, Pod]()
    for uid, node, phase, cards, what in steps:
        if what == "remove":
            there.pop(uid, None)
            accounts.remove(uid)
        else:
            there[uid] = pod(uid, node, uid=uid, phase=phase, requests={"nvidia.com/gpu": cards, "cpu": "1m"})
            accounts.put(there[uid])
        if what == "relist":
            there = {uid: there[uid]}
            accounts.list_began()
            accounts.put(there[uid])
            accounts.list_ended()
        for name in ("n1", "n2"):
            counted = [one for one in there.values() if counts(one) and one.spec.node_name == name]
            total = accounts.of(name)
            assert (total.pods, total.cpu_milli) == (len(counted), len(counted))
            assert total.cards[0] == sum(uses_of(one).cards[0] for one in counted)


def test_pods_that_give_way_can_be_left_out() -> None:
    accounts = Accounts(ignore_below=0)
    accounts.put(pod("low", requests={"nvidia.com/gpu": 4}, spec={"priority": -10}))
    accounts.put(pod("usual", requests={"nvidia.com/gpu": 1}))
    assert accounts.of("n1").cards == (1, 0)
