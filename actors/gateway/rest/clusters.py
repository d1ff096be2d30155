"""Attached clusters: join, look, share, leave. `clusters` decides; the gateway translates and writes the manifest."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ....errors import FORBIDDEN, INVALID, NOT_FOUND, LeversError, Refused
from ....model.clusters import NAMESPACE, ClusterSpec, Flavour
from ....model.selectors import selector_of
from ....model.states import TokenKind
from ....model.tokens import Principal
from ....store.operations import ListWorkspaces, WorkspaceRow, rows_of
from ....wire.cluster import (
    ClusterJoined,
    ClustersStand,
    ClusterStanding,
    JoinCluster,
    LeaveCluster,
    ReadClusters,
    ShareCluster,
)
from ....wire.message import Message
from ....wire.rest.clusters import ClusterAttached, ClusterLeft, ClusterList, ClusterShared, ClusterShown
from ..manifest import AgentManifest, render
from .answers import json_answer
from .bodies import read_json
from .cluster_views import cluster_view
from .desk import Call


class JoinBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster is told to be. `selector` is a text in Kubernetes' words; `node_selector` is added to it."""

    name: str
    gpu_type: str
    namespace: str = NAMESPACE
    node_selector: dict[str, str] | None = None
    selector: str = ""
    flavor: str = ""
    worker_image: str = ""
    image_pull_secret: str = ""
    host_network: bool | None = None


class ShareBody(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a cluster serves every workspace."""

    shared: bool


async def list_clusters(call: Call) -> Response:
    """The caller's own clusters, and the shared ones: with their nodes, unless `nodes=no` asks for the counts alone."""
    found = await _all(call)
    if call.query("nodes") != "no":
        found = [await _with_nodes(call, one) for one in found]
    return json_answer(ClusterList(clusters=tuple(map(cluster_view, found))))


async def _all(call: Call) -> list[ClusterStanding]:
    """All pages of them."""
    found: list[ClusterStanding] = []
    while True:
        stand = await _ask(call, ReadClusters(start=len(found)))
        found += stand.clusters
        if not stand.clusters or len(found) >= stand.total:
            return found


async def _with_nodes(call: Call, one: ClusterStanding) -> ClusterStanding:
    """With all pages of its nodes behind those that it has. One that has gone meanwhile keeps what it has."""
    nodes = list(one.nodes)
    while len(nodes) < one.nodes_total:
        try:
            stand = await _ask(call, ReadClusters(name=one.name, start=len(nodes)))
        except Refused as refused:
            if refused.code != NOT_FOUND:
                raise
            break
        more = _named(stand, one.name).nodes
        if not more:
            break  # there are fewer now
        nodes += more
    return msgspec.structs.replace(one, nodes=tuple(nodes))


async def show(call: Call) -> Response:
    """One cluster, its nodes, and its owner the manifest without the token."""
    name = call.parameter("name")
    stand = await _ask(call, ReadClusters(name=name))
    one = await _with_nodes(call, _named(stand, name))
    manifest = "" if one.spec is None else render(_manifest(call, one, one.spec, stand.agent_image))
    return json_answer(ClusterShown(cluster=cluster_view(one), manifest=manifest))


async def join(call: Call) -> Response:
    """Attach a cluster, or renew the token of one that is attached."""
    spec = _spec_of(await read_json(call.request, JoinBody))
    answer = await _answer(call, JoinCluster(spec=spec))
    if not isinstance(answer, ClusterJoined):
        raise LeversError(f"clusters answered JoinCluster with {type(answer).__name__}")
    told = _manifest(call, answer.cluster, answer.cluster.spec or spec, answer.agent_image, answer.token)
    view = cluster_view(answer.cluster)
    return json_answer(ClusterAttached(cluster=view, manifest=render(told), url=told.url, renewed=answer.renewed))


async def leave(call: Call) -> Response:
    """Detach a cluster."""
    name = call.parameter("name")
    await _ask(call, LeaveCluster(name=name))
    return json_answer(ClusterLeft(name=name))


async def share(call: Call) -> Response:
    """Let a cluster serve every workspace, or its own again."""
    name, body = call.parameter("name"), await read_json(call.request, ShareBody)
    one = _named(await _ask(call, ShareCluster(name=name, shared=body.shared)), name)
    return json_answer(ClusterShared(name=one.name, shared=one.shared))


def _spec_of(body: JoinBody) -> ClusterSpec:
    """Raises `Refused` for what is no flavour; all else is looked at by `clusters`."""
    if body.flavor not in tuple(Flavour):
        known = ", ".join(flavour for flavour in Flavour if flavour)
        raise Refused(f"{body.flavor[:40]!r} is no flavor of Kubernetes.", fix=f"{known}, or none.", code=INVALID)
    selector = ",".join(filter(None, (body.selector.strip(), selector_of(body.node_selector or {}))))
    return ClusterSpec(
        name=body.name,
        gpu_type=body.gpu_type,
        namespace=body.namespace or NAMESPACE,
        selector=selector,
        flavour=Flavour(body.flavor),
        worker_image=body.worker_image,
        pull_secret=body.image_pull_secret,
        host_network=body.host_network,
    )


def _manifest(call: Call, one: ClusterStanding, spec: ClusterSpec, image: str, token: str = "") -> AgentManifest:
    return AgentManifest(
        cluster_id=one.cluster_id,
        name=spec.name,
        namespace=spec.namespace,
        image=image,
        url=_url(call),
        token=token,
        ca_pem=call.desk.ca_pem,
        pull_secret=spec.pull_secret,
        flavour=spec.flavour,
    )


def _url(call: Call) -> str:
    """Where the agent dials: as the configuration says, else as this request came."""
    return call.desk.external_url.rstrip("/") or f"{call.request.url.scheme}://{call.request.url.netloc}"


def _named(stand: ClustersStand, name: str) -> ClusterStanding:
    for one in stand.clusters:
        if name in (one.name, one.pool):
            return one
    raise Refused(f"There is no cluster {name[:60]!r}.", fix="See: levers9 cluster list.", code=NOT_FOUND)


async def _ask(call: Call, message: Message) -> ClustersStand:
    answer = await _answer(call, message)
    if not isinstance(answer, ClustersStand):
        raise LeversError(f"clusters answered {type(message).__name__} with {type(answer).__name__}")
    return answer


async def _answer(call: Call, message: Message) -> Message:
    return await call.desk.questions.ask(message, await _speaker(call))


async def _speaker(call: Call) -> Principal:
    """The caller; the platform's admin may speak for a workspace, by name or id. Raises `Refused` for all others."""
    asked = call.query("workspace")
    if not asked:
        return call.principal
    (rows,) = await call.desk.store.apply(ListWorkspaces())
    found = next((row.workspace_id for row in rows_of(rows, WorkspaceRow) if asked in (row.name, row.workspace_id)), "")
    if call.principal.kind is not TokenKind.CLUSTER_ADMIN and found != call.principal.workspace_id:
        raise Refused("This token is for another workspace.", code=FORBIDDEN)
    if not found:
        raise Refused(f"There is no workspace {asked[:60]!r}.", fix="See: levers9 workspace list.", code=NOT_FOUND)
    return call.speaking_for(found)
