"""Joining through a person's own context, against a cluster in memory: what is looked at, applied, waited for, told."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
import trio
from trio.testing import MockClock

from levers9.actors.gateway.manifest import AgentManifest, render
from levers9.cli.cluster_join import Plane, Wish, hand_out, join, warn_of_nodes
from levers9.cli.kube_context import MANAGER, Context, agent_there, apply, check_rights, parts_of, remove_agent
from levers9.cli.progress import Progress
from levers9.errors import DeadlinePassed, KubeRefused, PeerProtocolError, Refused
from levers9.kube import kinds
from levers9.kube.memory import MemoryCluster
from levers9.wire.rest.clusters import ClusterAttached, ClusterList, ClusterShown, ClusterView, NodeView

CONTEXT = Context("here", "https://10.0.0.1:6443")
TOLD = AgentManifest(
    cluster_id="cluster-1",
    name="lab-1",
    namespace="levers9",
    image="levers9:1",
    url="https://levers9.example",
    token="l9_agent_" + "A" * 43,
)
WAITING = ClusterView(
    name="lab-1", gpu_type="H100", status="waiting", shared=False, owned=True, cluster_id="cluster-1",
    namespace="levers9",
)  # fmt: skip
NODE = NodeView(name="n1", state="ready", ready=True, gpus=8, gpus_free=8)
ONLINE = msgspec.structs.replace(WAITING, status="online", last_seen_s=9.0, nodes=(NODE,), matched=1)
WISH = Wish(
    name="lab-1", gpu_type="H100", namespace="levers9", selector="", flavor="", worker_image="", image_pull_secret="",
    host_network=None, wait_s=60.0,
)  # fmt: skip


@dataclass
class Said:
    """A control plane that answers as it is told to, and what was asked of it."""

    shown: Callable[[], ClusterView] = lambda: ONLINE
    known: tuple[ClusterView, ...] = ()
    url: str = "https://levers9.example"
    registered: list[Wish] = field(default_factory=list)
    out: io.StringIO = field(default_factory=io.StringIO)

    @property
    def plane(self) -> Plane:
        return Plane(self.register, self.show, self.clusters)

    @property
    def told(self) -> str:
        return self.out.getvalue()

    async def register(self, wish: Wish) -> ClusterAttached:
        self.registered.append(wish)
        await trio.lowlevel.checkpoint()
        return ClusterAttached(cluster=WAITING, manifest=render(TOLD), url=self.url)

    async def show(self, name: str) -> ClusterShown:
        assert name == "lab-1"
        await trio.lowlevel.checkpoint()
        return ClusterShown(cluster=self.shown())

    async def clusters(self) -> ClusterList:
        await trio.lowlevel.checkpoint()
        return ClusterList(clusters=self.known)

    async def join(self, kube: MemoryCluster, wish: Wish = WISH) -> ClusterView:
        progress = Progress(self.out, trio.current_time)
        return await join(wish, self.plane, kube, CONTEXT, progress)


@pytest.fixture
def kube() -> MemoryCluster:
    cluster = MemoryCluster(namespaces=("default", "levers9"))
    cluster.add_node("n1", labels={"pool": "a", "eks.amazonaws.com/nodegroup": "g"})
    return cluster


def agent_pod(kube: MemoryCluster, name: str = "levers9/levers9-agent-x") -> str:
    labels = {"app.kubernetes.io/name": "levers9-agent", "levers9.dev/cluster": "cluster-1"}
    kube.add_pod(name, labels=labels)
    return name


async def test_everything_in_the_manifest_is_applied_and_the_nodes_are_waited_for(kube: MemoryCluster) -> None:
    said = Said()
    cluster = await said.join(kube)
    assert cluster == ONLINE
    for part in parts_of(render(TOLD)):
        assert kube.find(part.kind, part.name, part.namespace) is not None
    assert await agent_there(kube, "levers9") == "cluster-1"
    words = ("Context here, at https://10.0.0.1:6443.", "1 node with 8 cards", "EKS", "Applying Namespace levers9,")
    assert [word for word in words if word not in said.told] == []
    assert said.registered[0].flavor == "eks"


async def test_joining_twice_applies_the_same_again(kube: MemoryCluster) -> None:
    said = Said(known=(ONLINE,))
    await said.join(kube)
    await said.join(kube)
    assert len(kube.all_of(kinds.DEPLOYMENTS)) == 1


async def test_what_a_person_may_not_do_is_told_before_anything_is_registered(kube: MemoryCluster) -> None:
    kube.forbid("create", "clusterroles")
    kube.forbid("patch", "secrets", "levers9")
    said = Said()
    with pytest.raises(Refused) as caught:
        await said.join(kube)
    assert caught.value.why == "Missing: create clusterroles; patch secrets in namespace levers9."
    assert "--manifest-only" in caught.value.fix
    assert said.registered == []


async def test_a_right_that_shows_only_when_it_is_used_is_told_with_the_object(kube: MemoryCluster) -> None:
    class Stubborn(MemoryCluster):
        async def apply(self, kind, body, namespace="", *, manager):  # type: ignore[no-untyped-def]
            if kind is kinds.CLUSTER_ROLES:
                raise KubeRefused(403, "Forbidden", "user may not grant what they have not")
            return await super().apply(kind, body, namespace, manager=manager)

    with pytest.raises(Refused) as caught:
        await apply(Stubborn(), parts_of(render(TOLD)))
    assert caught.value.what == "ClusterRole levers9-agent-levers9 could not be applied."
    assert "Rights can be given only by who has them" in caught.value.fix


async def test_a_selector_that_names_nothing_and_nodes_without_cards_are_warned_of(kube: MemoryCluster) -> None:
    said = Said()
    await said.join(kube, msgspec.structs.replace(WISH, selector="pool=b"))
    assert "Warning: The selector names none of its nodes." in said.told
    assert "pool has these values: a (1 node)." in said.told
    kube.set_cards("n1", 0)
    said = Said(known=(ONLINE,))
    await said.join(kube)
    assert "Warning: The one node that is lent has no card." in said.told


async def test_the_place_of_another_clusters_agent_is_not_taken(kube: MemoryCluster) -> None:
    await Said().join(kube)
    other = msgspec.structs.replace(ONLINE, name="lab-2")
    said = Said(known=(other,))
    with pytest.raises(Refused, match="already runs the agent of lab-2"):
        await said.join(kube)
    assert said.registered == []


async def test_an_agent_that_nobody_knows_is_replaced_and_that_is_told(kube: MemoryCluster) -> None:
    await Said().join(kube)
    said = Said()
    await said.join(kube)
    assert "has an agent that this control plane does not know: it is replaced." in said.told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1994", "reached from this machine only"),
        ("http://levers9.example", "is not encrypted"),
        ("https://levers9.example", ""),
    ],
)
async def test_an_address_that_the_agent_cannot_dial_is_warned_of(kube: MemoryCluster, url: str, told: str) -> None:
    said = Said(url=url)
    await said.join(kube)
    assert told in said.told
    assert ("Warning" in said.told) is bool(told)


async def test_pods_of_a_lab_reach_this_machine(kube: MemoryCluster) -> None:
    lab = MemoryCluster()
    lab.add_node("tray-0", labels={"levers9.dev/lab": "true"})
    said = Said(url="http://127.0.0.1:1994")
    await said.join(lab)
    assert "Warning" not in said.told


async def test_each_state_is_told_once_until_the_agent_has_come(kube: MemoryCluster, autojump_clock: MockClock) -> None:
    states = iter([WAITING, WAITING, WAITING, msgspec.structs.replace(WAITING, status="online"), ONLINE])
    said = Said(shown=lambda: next(states))
    await said.join(kube)
    assert said.told.count("Its pod is not there yet") == 1
    assert "The agent has dialled in, and looks at the nodes." in said.told


async def test_an_image_that_cannot_be_pulled_is_told(kube: MemoryCluster, autojump_clock: MockClock) -> None:
    kube.fail_pull(agent_pod(kube), "ErrImagePull", "levers9:1: not found")
    said = Said(shown=lambda: WAITING)
    with pytest.raises(DeadlinePassed) as caught:
        await said.join(kube)
    assert "cannot be pulled: levers9:1: not found." in said.told
    assert "did not dial in within 60 s" in str(caught.value)
    assert "cannot be pulled" in str(caught.value)
    assert trio.current_time() == pytest.approx(60.0, abs=1.0)


async def test_why_an_agent_cannot_dial_is_read_in_its_log(kube: MemoryCluster, autojump_clock: MockClock) -> None:
    pod = agent_pod(kube)
    kube.start_pod(pod)
    kube.write_log(
        "levers9-agent-x",
        "levers9",
        '{"event": "cannot dial", "error": "The certificate of x is not signed by anybody"}',
    )
    said = Said(shown=lambda: WAITING)
    with pytest.raises(DeadlinePassed, match="--external-ca FILE"):
        await said.join(kube)
    assert "  | cannot dial: The certificate of x is not signed by anybody" in said.told


async def test_an_api_server_that_goes_away_ends_no_waiting(kube: MemoryCluster, autojump_clock: MockClock) -> None:
    looks = iter(range(100))

    def shown() -> ClusterView:
        look = next(looks)
        if look == 1:
            kube.go_away()
        return ONLINE if look == 5 else WAITING

    said = Said(shown=shown)
    assert await said.join(kube) == ONLINE
    assert "its pod cannot be looked at" in said.told


async def test_who_does_not_wait_hears_at_once(kube: MemoryCluster) -> None:
    said = Said(shown=lambda: WAITING)
    assert await said.join(kube, msgspec.structs.replace(WISH, wait_s=0.0)) == WAITING


def test_what_the_agent_found_odd_is_told() -> None:
    out = io.StringIO()
    progress = Progress(out)
    warn_of_nodes(msgspec.structs.replace(ONLINE, problem="It may not list pods."), progress)
    warn_of_nodes(msgspec.structs.replace(ONLINE, nodes=(), matched=0), progress)
    warn_of_nodes(msgspec.structs.replace(ONLINE, nodes=(msgspec.structs.replace(NODE, gpus=0),)), progress)
    warn_of_nodes(ONLINE, progress)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "Warning: It may not list pods."


# Leaving


async def test_what_was_applied_is_deleted_with_the_workers_jobs_and_the_namespace_stays(kube: MemoryCluster) -> None:
    await Said().join(kube)
    job = {"metadata": {"name": "w-1", "labels": {"levers9.dev/cluster": "cluster-1"}}, "spec": {}}
    other = {"metadata": {"name": "w-2", "labels": {"levers9.dev/cluster": "cluster-2"}}, "spec": {}}
    for one in (job, other):
        await kube.create(kinds.JOBS, one, "levers9")
    removed = await remove_agent(kube, "cluster-1", "levers9")
    assert removed == len(parts_of(render(TOLD)))  # all but the namespace, and the Job
    assert [one.metadata.name for one in kube.all_of(kinds.JOBS)] == ["w-2"]
    assert kube.find(kinds.NAMESPACES, "levers9") is not None
    assert kube.find(kinds.SECRETS, "levers9-agent", "levers9") is None
    assert kube.all_of(kinds.CLUSTER_ROLES) == ()


OLD = msgspec.structs.replace(TOLD, namespace="old")


async def moving(kube: MemoryCluster) -> Said:
    """A control plane that knows the cluster in another namespace, where its agent stands."""
    await apply(kube, parts_of(render(OLD)))
    return Said(known=(msgspec.structs.replace(ONLINE, namespace="old"),))


async def test_what_it_leaves_in_another_namespace_is_deleted_when_it_moves(kube: MemoryCluster) -> None:
    said = await moving(kube)
    await said.join(kube)
    assert "It moved out of namespace old: 7 objects" in said.told
    assert [kube.find(part.kind, part.name, part.namespace) for part in parts_of(render(OLD))[1:]] == [None] * 7
    assert [part.name for part in parts_of(render(TOLD)) if not kube.find(part.kind, part.name, part.namespace)] == []


async def test_what_may_not_be_deleted_where_it_was_is_told_and_ends_no_joining(kube: MemoryCluster) -> None:
    said = await moving(kube)
    kube.forbid("delete", "secrets", "old")
    assert await said.join(kube) == ONLINE
    assert "kubectl delete clusterrolebindings,clusterroles levers9-agent-old" in said.told


async def test_without_a_context_what_it_leaves_is_told() -> None:
    said = Said(known=(msgspec.structs.replace(ONLINE, namespace="old"),))
    await hand_out(WISH, said.plane, Progress(said.out, trio.current_time))
    assert "It moves out of namespace old. Delete what is left there with:\n  kubectl delete" in said.told


async def test_leaving_finds_what_is_left_in_another_namespace(kube: MemoryCluster) -> None:
    await moving(kube)
    await apply(kube, parts_of(render(TOLD)))
    assert await remove_agent(kube, "cluster-1", "levers9") == 2 * (len(parts_of(render(TOLD))) - 1)
    assert await agent_there(kube, "old") == ""


async def test_who_may_look_into_their_own_namespace_only_leaves_that_one(kube: MemoryCluster) -> None:
    await Said().join(kube)
    for plural in ("deployments", "secrets", "roles", "rolebindings", "serviceaccounts", "jobs"):
        kube.forbid("list", plural, "")
    assert await remove_agent(kube, "cluster-1", "levers9") == len(parts_of(render(TOLD))) - 1


async def test_another_clusters_agent_of_the_same_name_stays(kube: MemoryCluster) -> None:
    await Said().join(kube)
    assert await remove_agent(kube, "cluster-2", "levers9") == 0
    assert await agent_there(kube, "levers9") == "cluster-1"


async def test_who_may_do_everything_is_let_through(kube: MemoryCluster) -> None:
    await check_rights(kube, CONTEXT, "levers9")
    assert MANAGER == "levers9-cli"


def test_a_manifest_with_what_this_version_does_not_know_is_not_half_applied() -> None:
    with pytest.raises(PeerProtocolError, match="DaemonSet"):
        parts_of("kind: DaemonSet\nmetadata: {name: x}\n")
