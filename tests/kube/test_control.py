"""The in-memory cluster's controllers, whatever happens, against accounts that are made anew each time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levers9.kube.history import Stored
from levers9.kube.kinds import JOBS, NAMESPACES, NODES, PODS
from levers9.kube.memory_binding import asked_of
from levers9.kube.memory_control import ENDED, Control
from levers9.kube.memory_objects import Objects

from .worlds import a_job

CARDS = 4
NODE_NAMES = st.sampled_from(["a", "b", "c"])
JOB_NAMES = st.sampled_from(["w-1", "w-2", "w-3", "w-4"])
HERE = "here"


class Story(RuleBasedStateMachine):
    """Rules are what people, kubelets and the network do; each is followed by the controllers."""

    def __init__(self) -> None:
        super().__init__()
        self.control = Control()
        self.objects = Objects("story", lambda: "2026-01-01T00:00:00Z", self.control.noticed)
        self.control.serve(self.objects)
        self.objects.create(NAMESPACES, {"metadata": {"name": HERE}})
        self.most_pods: Counter[str] = Counter()  # by the Job's uid

    @rule(name=NODE_NAMES)
    def a_node_comes_or_goes(self, name: str) -> None:
        node = self.objects.at(NODES, name)
        if node is None:
            status = {"allocatable": {"nvidia.com/gpu": str(CARDS)}}
            labels = {"kubernetes.io/hostname": name}
            self.objects.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        else:
            self.objects.remove(NODES, node)
            self.control.lose_pods_of(name)
        self.control.settle()

    @rule(name=NODE_NAMES, on=st.booleans())
    def a_node_is_cordoned_or_not(self, name: str, on: bool) -> None:
        node = self.objects.at(NODES, name)
        if node is not None:
            taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
            self.objects.patch(NODES, node, {"spec": {"taints": taints if on else None}})
            self.control.settle()

    @rule(name=JOB_NAMES, node=NODE_NAMES, cards=st.integers(0, CARDS), again=st.integers(0, 1))
    def a_job_is_made(self, name: str, node: str, cards: int, again: int) -> None:
        if self.objects.at(JOBS, name, HERE) is None:
            body = dict(a_job(name, cards=cards, node=node, backoff_limit=again))
            self.objects.create(JOBS, body, HERE)
            self.control.settle()

    @rule(name=JOB_NAMES)
    def a_job_is_deleted(self, name: str) -> None:
        job = self.objects.at(JOBS, name, HERE)
        if job is not None:
            self.control.end(JOBS, job)
            self.control.settle()

    @precondition(lambda self: self.pods())
    @rule(data=st.data(), phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def a_pod_goes_on(self, data: st.DataObject, phase: str) -> None:
        pod = data.draw(st.sampled_from(self.pods()))
        if _phase(pod) not in ENDED and _node(pod):
            self.objects.patch(PODS, pod, {"status": {"phase": phase}})
            self.control.settle()

    @precondition(lambda self: self.pods())
    @rule(data=st.data())
    def a_pod_is_deleted(self, data: st.DataObject) -> None:
        self.control.end(PODS, data.draw(st.sampled_from(self.pods())))
        self.control.settle()

    @rule(on=st.booleans())
    def kubelets_end_pods_themselves(self, on: bool) -> None:
        self.control.graceful = on

    @rule(on=st.booleans())
    def a_webhook_forbids_pods(self, on: bool) -> None:
        self.control.makes_pods = not on
        self.control.look_at_every_job()

    def pods(self) -> list[Stored]:
        return self.objects.all_of(PODS)

    @invariant()
    def no_node_gives_more_cards_than_it_has(self) -> None:
        taken: Counter[str] = Counter()
        for pod in self.pods():
            if _node(pod) and _phase(pod) not in ENDED:
                taken[_node(pod)] += asked_of(pod.body)["nvidia.com/gpu"]
        assert all(count <= CARDS for count in taken.values())

    @invariant()
    def a_pod_waits_only_for_a_node_that_would_not_have_it(self) -> None:
        for pod in self.pods():
            if _node(pod) or _phase(pod) in ENDED:
                continue
            node = self.objects.at(NODES, pod.body["spec"]["nodeSelector"]["kubernetes.io/hostname"])  # type: ignore[index]
            held = [other for other in self.pods() if node and _node(other) == node.name and _phase(other) not in ENDED]
            free = CARDS - sum(asked_of(other.body)["nvidia.com/gpu"] for other in held)
            cordoned = node is not None and bool(node.body.get("spec", {}).get("taints"))  # type: ignore[attr-defined]
            assert node is None or cordoned or free < asked_of(pod.body)["nvidia.com/gpu"]

    @invariant()
    def a_job_has_one_pod_that_goes_on_and_no_more_than_it_may_try(self) -> None:
        for job in self.objects.all_of(JOBS):
            mine = [pod for pod in self.pods() if _job_uid(pod) == job.uid]
            assert sum(_phase(pod) not in ENDED for pod in mine) <= 1
            assert len(mine) <= job.body["spec"]["backoffLimit"] + 1  # type: ignore[index]

    @invariant()
    def no_pod_of_a_job_outlives_it_but_on_its_node(self) -> None:
        jobs = {job.uid for job in self.objects.all_of(JOBS)}
        for pod in self.pods():
            assert _job_uid(pod) in jobs or "deletionTimestamp" in pod.body["metadata"]  # type: ignore[operator]

    @invariant()
    def every_version_is_its_own(self) -> None:
        versions = [stored.version for kind in (PODS, JOBS, NODES) for stored in self.objects.all_of(kind)]
        assert len(set(versions)) == len(versions)
        assert max(versions, default=0) <= self.objects.version


def _phase(pod: Stored) -> str:
    return str(pod.body["status"]["phase"])  # type: ignore[index]


def _node(pod: Stored) -> str:
    return str(pod.body["spec"].get("nodeName", ""))  # type: ignore[attr-defined]


def _job_uid(pod: Stored) -> str:
    return str(pod.body["metadata"]["ownerReferences"][0]["uid"])  # type: ignore[index]


TestStory = pytest.mark.slow(Story.TestCase)
TestStory.settings = settings(settings.get_profile("property"), max_examples=200)
