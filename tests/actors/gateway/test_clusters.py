"""Attached clusters over REST: what is asked of `clusters`, what is shown, and what the published client reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from levers9.model.clusters import ClusterSpec, ClusterState, Flavour
from levers9.model.nodes import NodeState
from levers9.model.resources import Capacity
from levers9.model.states import TokenKind
from levers9.wire.client import RequestRefused
from levers9.wire.cluster import (
    ClusterJoined,
    ClustersStand,
    ClusterStanding,
    JoinCluster,
    LeaveCluster,
    NodeShown,
    ReadClusters,
    ShareCluster,
)
from levers9.wire.message import Failure, Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from .conftest import Stand

    MakeStand = Callable[..., AbstractAsyncContextManager[Stand]]

CLUSTERS = "/api/v1/controlplane/clusters"
WHOLE = Capacity(cpu_milli=8000, memory_mib=65536, gpu_count=4, gpu_type="GB200")
OURS = Capacity(cpu_milli=3000, memory_mib=1024, gpu_count=2, gpu_type="GB200")
FREE = Capacity(cpu_milli=4000, memory_mib=32768, gpu_count=3, gpu_type="GB200")
SPEC = ClusterSpec(name="lab-1", gpu_type="GB200", selector="pool=a", worker_image="w:1", pull_secret="pull")
OWN = ClusterStanding(
    cluster_id="cluster-1",
    name="lab-1",
    pool="lab-1-abc123",
    gpu_type="GB200",
    state=ClusterState.ONLINE,
    shared=False,
    owned=True,
    spec=SPEC,
    nodes=(
        NodeShown(name="n1", state=NodeState.READY, allocatable=WHOLE, free=FREE, ours=OURS, worker_id="w1"),
        NodeShown(name="n2", state=NodeState.CORDONED, allocatable=WHOLE, free=WHOLE, why="somebody cordoned it"),
    ),
    matched=2,
    last_seen_s=1_795_976_400.5,
    agent_version="0.1.0",
)
OTHERS = ClusterStanding(
    cluster_id="cluster-2",
    name="big",
    pool="big-def456",
    gpu_type="H100",
    state=ClusterState.STALE,
    shared=True,
    owned=False,
    nodes=(NodeShown(name="", state=NodeState.READY, allocatable=WHOLE, free=FREE),),
)
OWN_WITHOUT_NODES = msgspec.structs.replace(OWN, nodes=())
STAND = ClustersStand(clusters=(OWN, OTHERS), agent_image="levers9:1", worker_image="levers9:1")
TOKEN = "l9_agent_" + "A" * 43


def with_clusters(stand: Stand) -> Stand:
    for question in (ReadClusters, ShareCluster, LeaveCluster):
        stand.brain.answers[question] = lambda _: STAND
    stand.brain.answers[JoinCluster] = lambda _: ClusterJoined(
        cluster=OWN, token=TOKEN, agent_image="levers9:1", worker_image="levers9:1"
    )
    return stand


@pytest.mark.parametrize("path", [CLUSTERS, "/api/v1/cluster"])
async def test_clusters_are_listed_in_the_words_that_the_published_client_reads(stand: Stand, path: str) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get(path)).json()
    own, others = answer["clusters"]
    assert answer["ok"] is True
    assert {key: own[key] for key in ("name", "gpu_type", "status", "shared", "owned", "last_seen_at")} == {
        "name": "lab-1",
        "gpu_type": "GB200",
        "status": "online",
        "shared": False,
        "owned": True,
        "last_seen_at": "2026-11-29T18:20:00Z",
    }
    shown = ("name", "ready", "gpus", "gpus_free", "cpu_free_millis", "memory_free_mb")
    assert [tuple(node[key] for key in shown) for node in own["nodes"]] == [
        ("n1", True, 4, 3, 4000, 32768),
        ("n2", False, 4, 4, 8000, 65536),
    ]
    ours = ("gpus_ours", "cpu_ours_millis", "memory_ours_mb")
    assert [tuple(node[key] for key in ours) for node in own["nodes"]] == [(2, 3000, 1024), (0, 0, 0)]
    assert (others["last_seen_at"], others["namespace"], others["nodes"][0]["name"]) == ("", "", "")


def paged(message: Message) -> ClustersStand:
    """One's own cluster of five nodes and another's of three; a page is one cluster, or two nodes."""
    assert isinstance(message, ReadClusters)
    stand = [
        msgspec.structs.replace(one, nodes=(), nodes_total=total, nodes_ready=total - 1, cards=4 * total)
        for one, total in ((OWN, 5), (OTHERS, 3))
    ]
    if not message.name:
        return ClustersStand(clusters=tuple(stand[message.start : message.start + 1]), total=2)
    (one,) = (one for one in stand if message.name in (one.name, one.pool))
    numbers = range(message.start, min(message.start + 2, one.nodes_total))
    nodes = tuple(msgspec.structs.replace(OWN.nodes[0], name=f"n{number}") for number in numbers)
    return ClustersStand(clusters=(msgspec.structs.replace(one, nodes=nodes),), total=1)


async def test_all_pages_of_clusters_and_of_their_nodes_are_put_together(stand: Stand) -> None:
    stand.brain.answers[ReadClusters] = paged
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        listed = (await http.get(CLUSTERS)).json()["clusters"]
        shown = (await http.get(f"{CLUSTERS}/lab-1")).json()["cluster"]
    names = [[node["name"] for node in one["nodes"]] for one in (*listed, shown)]
    assert names == [["n0", "n1", "n2", "n3", "n4"], ["n0", "n1", "n2"], ["n0", "n1", "n2", "n3", "n4"]]


async def test_nodes_that_nobody_knows_yet_are_told_as_unknown_in_a_list_that_is_read_as_before(stand: Stand) -> None:
    unknown = msgspec.structs.replace(OWN, nodes=(), nodes_known=False, agent_silent=True)
    stand.brain.answers[ReadClusters] = lambda _: ClustersStand(clusters=(unknown, OTHERS), total=2)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        listed = (await http.get(CLUSTERS)).json()["clusters"]
    found = [(one["status"], one["nodes_known"], one["agent_silent"], len(one["nodes"])) for one in listed]
    assert found == [("online", False, True, 0), ("stale", True, False, 1)]


async def test_who_wants_counts_alone_is_told_no_nodes(stand: Stand) -> None:
    stand.brain.answers[ReadClusters] = paged
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        listed = (await http.get(CLUSTERS, params={"nodes": "no"})).json()["clusters"]
    counts = [(one["nodes"], one["nodes_total"], one["nodes_ready"], one["cards"]) for one in listed]
    assert counts == [([], 5, 4, 20), ([], 3, 2, 12)]
    assert [message.name for _, message in stand.brain.heard(ReadClusters)] == ["", ""]


@pytest.mark.parametrize("gone", [True, False])
async def test_a_cluster_that_goes_or_shrinks_while_it_is_read_holds_up_nothing(stand: Stand, gone: bool) -> None:
    def read(message: Message) -> Message:
        assert isinstance(message, ReadClusters)
        if message.name != "lab-1" or not message.start:
            return paged(message)
        failure = Failure("not_found", "There is no cluster 'lab-1'.")
        return RequestRefused(failure=failure) if gone else ClustersStand(clusters=(OWN_WITHOUT_NODES,), total=1)

    stand.brain.answers[ReadClusters] = read
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        listed = (await http.get(CLUSTERS)).json()["clusters"]
    assert [len(one["nodes"]) for one in listed] == [2, 3]


async def test_an_owner_is_shown_the_manifest_without_the_token(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get(f"{CLUSTERS}/lab-1")).json()
    kinds = [one["kind"] for one in yaml.safe_load_all(answer["manifest"])]
    assert (answer["cluster"]["selector"], answer["cluster"]["image_pull_secret"]) == ("pool=a", "pull")
    assert "Deployment" in kinds
    assert "Secret" not in kinds


async def test_of_anothers_shared_cluster_there_is_no_manifest(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get(f"{CLUSTERS}/big-def456")).json()
    assert (answer["cluster"]["name"], answer["manifest"]) == ("big", "")


async def test_joining_says_what_was_asked_and_answers_the_manifest_with_the_token(stand: Stand) -> None:
    with_clusters(stand)
    body = {
        "name": "lab-1",
        "gpu_type": "GB200",
        "namespace": "gpu",
        "node_selector": {"a": "b", "k in (x,y)": "", "bare": ""},
        "flavor": "gke",
        "worker_image": "w:1",
        "image_pull_secret": "pull",
    }
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.post(CLUSTERS, json=body)).json()
        address = str(http.base_url).rstrip("/")
    ((envelope, asked),) = stand.brain.heard(JoinCluster)
    assert isinstance(asked, JoinCluster)
    assert (envelope.workspace, asked.spec) == (
        "ws-a",
        ClusterSpec(
            name="lab-1",
            gpu_type="GB200",
            namespace="gpu",
            selector="a=b,k in (x,y),bare",
            flavour=Flavour.GKE,
            worker_image="w:1",
            pull_secret="pull",
        ),
    )
    assert (TOKEN in answer["manifest"], answer["url"], answer["renewed"]) == (True, address, False)
    assert answer["manifest"].count(f"value: {address}") == 1


async def test_the_manifest_says_where_the_configuration_says_and_whom_to_trust_there(make_stand: MakeStand) -> None:
    async with make_stand(external_url="https://levers9.example/", ca_pem="-----BEGIN\nx\n-----END\n") as stand:
        with_clusters(stand)
        async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
            joined = (await http.post(CLUSTERS, json={"name": "lab-1", "gpu_type": "L4"})).json()
            shown = (await http.get(f"{CLUSTERS}/lab-1")).json()
    assert joined["url"] == "https://levers9.example"
    assert "ca.crt: |" in joined["manifest"]
    assert "value: https://levers9.example\n" in shown["manifest"]


async def test_our_own_command_line_sends_the_selector_as_one_text(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        await http.post(CLUSTERS, json={"name": "lab-1", "gpu_type": "L4", "selector": "a in (b,c),!d"})
    ((_, asked),) = stand.brain.heard(JoinCluster)
    assert isinstance(asked, JoinCluster)
    assert asked.spec.selector == "a in (b,c),!d"


async def test_a_flavor_that_there_is_not_is_told_before_anybody_is_asked(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.post(CLUSTERS, json={"name": "lab-1", "gpu_type": "L4", "flavor": "openshift"})
    assert (answer.status_code, answer.json()["ok"]) == (400, False)
    assert "'openshift' is no flavor of Kubernetes. gke, eks, aks, or none." in answer.json()["err_msg"]
    assert stand.brain.heard(JoinCluster) == []


async def test_a_cluster_is_shared_and_taken_back_by_the_platforms_admin(stand: Stand) -> None:
    with_clusters(stand)
    shared = msgspec.structs.replace(STAND, clusters=(msgspec.structs.replace(OWN, shared=True),))
    stand.brain.answers[ShareCluster] = lambda _: shared
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN)) as http:
        answer = (await http.put("/api/v1/cluster/lab-1/shared", json={"shared": True})).json()
    ((envelope, asked),) = stand.brain.heard(ShareCluster)
    assert (envelope.kind, asked) == ("cluster_admin", ShareCluster(name="lab-1", shared=True))
    assert (answer["ok"], answer["name"], answer["shared"]) == (True, "lab-1", True)


async def test_a_cluster_is_left(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.delete(f"{CLUSTERS}/lab-1")).json()
    ((_, asked),) = stand.brain.heard(LeaveCluster)
    assert (asked, answer["ok"]) == (LeaveCluster(name="lab-1"), True)


async def test_the_admin_speaks_for_a_workspace_that_is_named_and_nobody_else_does(stand: Stand) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        await http.get(CLUSTERS, params={"workspace": "a"})
        missing = await http.get(CLUSTERS, params={"workspace": "nobody"})
    ((envelope, _),) = stand.brain.heard(ReadClusters)
    async with stand.http(await stand.token(TokenKind.WORKSPACE, "ws-b")) as http:
        refused = await http.get(CLUSTERS, params={"workspace": "a"})
    assert (envelope.workspace, envelope.kind) == ("ws-a", "cluster_admin")
    assert (missing.status_code, refused.status_code) == (404, 403)


async def test_a_cluster_that_is_not_there_is_told_so(stand: Stand) -> None:
    stand.brain.answers[ReadClusters] = lambda _: ClustersStand(clusters=())
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.get(f"{CLUSTERS}/nobody")
    assert (answer.status_code, answer.json()["what"]) == (404, "There is no cluster 'nobody'.")


async def test_a_refusal_arrives_as_it_was_said(stand: Stand) -> None:
    failure = Failure("quota", "Your workspace has 5 clusters.", "That is all it may have.", "Leave one.")
    stand.brain.answers[JoinCluster] = lambda _: RequestRefused(failure=failure)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.post(CLUSTERS, json={"name": "lab-6", "gpu_type": "L4"})
    assert answer.status_code == 422
    assert answer.json()["err_msg"] == "Your workspace has 5 clusters. That is all it may have. Leave one."


@pytest.mark.parametrize("kind", [TokenKind.WORKSPACE_RESTRICTED, TokenKind.WORKER, TokenKind.AGENT])
async def test_a_containers_token_can_neither_attach_nor_detach(stand: Stand, kind: TokenKind) -> None:
    with_clusters(stand)
    async with stand.http(await stand.token(kind, subject="x")) as http:
        joined = await http.post(CLUSTERS, json={"name": "lab-1", "gpu_type": "L4"})
        left = await http.delete(f"{CLUSTERS}/lab-1")
    assert (joined.status_code, left.status_code) == (403, 403)
