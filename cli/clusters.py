"""`levers9 cluster`: attach a cluster that you run, look at it, share it, and leave."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import quote

import cyclopts
import msgspec
import trio

from ..errors import FORBIDDEN, INVALID, NOT_FOUND, ConfigError, KubeRefused, KubeUnavailable, Refused
from ..model.clusters import NAMESPACE, check_name
from ..model.figures import JOIN_WAIT_S
from ..model.selectors import parse, selector_of
from ..model.sentences import plural
from ..wire.rest.clusters import (
    ClusterAttached,
    ClusterLeft,
    ClusterList,
    ClusterShared,
    ClusterShown,
    ClusterView,
    NodeView,
)
from .output import Json, ago, print_json, print_sentence, print_table
from .plane import ask
from .progress import Progress

app = cyclopts.App(name="cluster", help="Clusters that you run: join, list, nodes, share, manifest, leave.")
Name = Annotated[str, cyclopts.Parameter(name="NAME", help="What you call it, such as lab-1.")]
Workspace = Annotated[str, cyclopts.Parameter(help="For the platform's admin: whose cluster it is.")]
Format = Annotated[Literal["table", "json"], cyclopts.Parameter(help="table or json.")]
Kubeconfig = Annotated[Path | None, cyclopts.Parameter(help="Another file than $KUBECONFIG or ~/.kube/config.")]
ContextName = Annotated[str, cyclopts.Parameter(name="--context", help="Another context than the current one.")]
T = TypeVar("T")
_AT: Final = "controlplane/clusters"


@app.command
def join(
    name: Name,
    /,
    *,
    gpu: str,
    selector: list[str] | None = None,
    namespace: str = NAMESPACE,
    flavor: Literal["gke", "eks", "aks"] | None = None,
    worker_image: str = "",
    pull_secret: str = "",
    host_network: Annotated[bool | None, cyclopts.Parameter(negative="--no-host-network")] = None,
    manifest_only: bool = False,
    wait: Annotated[bool, cyclopts.Parameter(negative="--no-wait")] = True,
    timeout: float = JOIN_WAIT_S,
    context: ContextName = "",
    kubeconfig: Kubeconfig = None,
    workspace: Workspace = "",
    json: Json = False,
) -> None:
    """Attach the cluster of your current kube context, and wait until its agent has reported the nodes.

    It asks first whether you may do all of it, and looks at the nodes. Joining again under the same name renews the
    agent's token, and takes what is said here in place of what was said.

    Example: levers9 cluster join lab-1 --gpu H100 --selector pool=gpus

    Parameters
    ----------
    gpu
        The type of its cards, such as H100.
    selector
        Which nodes it lends: key=value, 'key in (a,b)' or key; again for several at once. Default: all.
    namespace
        Where the agent and the workers run.
    flavor
        gke, eks or aks; told from the nodes when it is not given.
    worker_image
        An image for workers that the cluster can pull; default: the control plane's.
    pull_secret
        The name of a secret in the namespace with which images are pulled.
    host_network
        Whether workers use their node's network; default: as the control plane says.
    manifest_only
        Print the manifest instead of applying it: no context is needed.
    wait
        Wait until the agent has dialled in.
    timeout
        Seconds to wait.
    """
    from .cluster_join import Plane, Wish, hand_out, warn_of_nodes
    from .cluster_join import join as attach

    wish = Wish(
        name=name, gpu_type=gpu, namespace=namespace, selector=selector_text(selector or ()), flavor=flavor or "",
        worker_image=worker_image, image_pull_secret=pull_secret, host_network=host_network,
        wait_s=timeout if wait else 0.0,
    )  # fmt: skip
    check_name(wish.name)
    parse(wish.selector)
    if not 0 <= timeout < math.inf:
        raise Refused(f"--timeout {timeout:g} is no time to wait.", fix="Write seconds, such as 180.", code=INVALID)
    if manifest_only and json:
        raise Refused(
            "--manifest-only prints a manifest, and --json the cluster.", fix="Say one of them.", code=INVALID
        )
    calls = _Calls(workspace)
    plane, progress = Plane(calls.register, calls.show, calls.clusters), Progress()

    async def whole() -> ClusterView:
        if manifest_only:
            return await hand_out(wish, plane, progress)
        return await _in_context(kubeconfig, context, "--manifest-only", partial(attach, wish, plane), progress)

    try:
        cluster = trio.run(whole)
    except KeyboardInterrupt:
        progress.done()
        progress.tell(calls.left_behind(name))
        raise
    if wish.wait_s:
        progress.tell(f"The agent of {name} has dialled in after {progress.spent_s:.0f} s.")
        warn_of_nodes(cluster, progress)
    else:
        progress.tell(f"{name} is registered; see `levers9 cluster list` for when its agent has dialled in.")
    if json:
        print_json(cluster)
    elif wish.wait_s and not manifest_only:
        _print_nodes(cluster.nodes)


class _Calls:
    """Questions to the control plane, in a thread, so that waiting can be broken off."""

    def __init__(self, workspace: str) -> None:
        self._query: dict[str, object] = {"workspace": workspace}
        self._asked = False

    async def register(self, wish: msgspec.Struct) -> ClusterAttached:
        """Attach it, or renew its token."""
        self._asked = True
        body = {key: value for key, value in msgspec.structs.asdict(wish).items() if key != "wait_s"}
        return await self._in_thread(partial(ask, ClusterAttached, "POST", _AT, body, self._query))

    async def show(self, name: str) -> ClusterShown:
        """One cluster."""
        return await self._in_thread(partial(ask, ClusterShown, "GET", f"{_AT}/{quote(name)}", None, self._query))

    async def clusters(self) -> ClusterList:
        """All that we may see."""
        return await self._in_thread(partial(ask, ClusterList, "GET", _AT, None, {"nodes": "no", **self._query}))

    def left_behind(self, name: str) -> str:
        """What there is of a cluster after Ctrl-C."""
        if not self._asked:
            return "Broken off: nothing was changed."
        back = f"`levers9 cluster leave {name}` takes it back"
        return f"Broken off: {name} is registered, what was applied stays. The same command goes on from there; {back}."

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


async def _in_context(
    kubeconfig: Path | None, context: str, without: str, do: Callable[..., Awaitable[T]], *rest: object
) -> T:
    from .kube_context import opened

    async with opened(kubeconfig, context, without) as (kube, named):
        return await do(kube, named, *rest)


def selector_text(conditions: Sequence[str]) -> str:
    """Conditions as they are typed, in one text: `key=in (a,b)` is understood as well as `key in (a,b)`."""
    typed = (re.fullmatch(r"([^=]+)=\s*((?:in|notin)\s*\(.*\))", one.strip()) for one in conditions)
    return ",".join(
        selector_of({found[1]: found[2]}) if found else one.strip() for found, one in zip(typed, conditions)
    )


@app.command(name="list")
def list_(*, json: Json = False, format: Format = "table", workspace: Workspace = "") -> None:
    """List your own clusters, and those that are shared."""
    found = ask(ClusterList, "GET", _AT, query={"nodes": "no", "workspace": workspace}).clusters
    if json or format == "json":
        print_json(found)
        return
    headings = (
        "CLUSTER", "GPU", "STATE", "NODES", "CARDS", "OURS", "FREE", "SEEN", "SERVES", "WORKERS", "AGENT", "WHY",
    )  # fmt: skip
    print_table(headings, map(_row, found), "There are no clusters. `levers9 cluster join` attaches one.")


def _row(one: ClusterView) -> tuple[str, ...]:
    nodes = f"{one.nodes_ready}/{one.nodes_total}" if one.nodes_known else "–"
    cards = (str(one.cards), str(one.cards_ours), str(one.cards_free)) if one.nodes_known else ("–", "–", "–")
    unseen = "" if one.nodes_known or one.status == "waiting" else "Its nodes are not reported yet."
    silent = "Its agent is not heard: where that goes on, no worker starts there." if one.agent_silent else ""
    pending = f" ({one.pending} pending)" if one.pending else ""
    old = "Its agent is older than the control plane." if one.agent_outdated else ""
    none = one.nodes_known and one.nodes_total and not one.nodes_ready and not one.problem
    shut = f"None of its nodes takes work: see `levers9 cluster nodes {one.name}`." if none else ""
    why = " ".join(filter(None, (unseen, silent, one.problem, shut, old, *one.waits)))
    return (
        one.name, one.gpu_type, one.status, nodes, *cards, ago(one.last_seen_s), _serves(one),
        f"{one.workers}{pending}", _agent(one), why,
    )  # fmt: skip


def _serves(one: ClusterView) -> str:
    if one.shared:
        return "everyone"
    return "you" if one.owned else f"{one.workspace or 'its owner'} only"


def _agent(one: ClusterView) -> str:
    if not one.agent_version:
        return "–"
    up = f", up {ago(one.agent_started_at_s)}" if one.agent_started_at_s else ""
    return f"{one.agent_version}{up}"


@app.command
def nodes(name: Name, /, *, json: Json = False, workspace: Workspace = "") -> None:
    """Show the nodes of a cluster, and what is free on each.

    OURS are the cards of our workers, at work or idle; FREE are those that nobody has.
    """
    cluster = _show(name, workspace).cluster
    if json:
        print_json(cluster.nodes)
        return
    if cluster.status == "waiting":
        print(f"{cluster.name} is waiting: its agent has never dialled in.", file=sys.stderr)
    elif not cluster.nodes_known:
        print(f"{cluster.name} is {cluster.status}; its nodes are not reported yet.", file=sys.stderr)
    elif cluster.status != "online":
        print(f"{cluster.name} is {cluster.status}: this is what was last reported.", file=sys.stderr)
    elif cluster.agent_silent:
        seen = ago(cluster.last_seen_s)
        print(f"Its agent is not heard: this is what it said {seen} ago.", file=sys.stderr)
    if cluster.problem:
        print(cluster.problem, file=sys.stderr)
    _print_nodes(cluster.nodes)


def _print_nodes(found: Sequence[NodeView]) -> None:
    headings = ("NODE", "STATE", "CARDS", "OURS", "FREE", "CPU FREE", "MEMORY FREE", "WORKER", "WHY")
    rows = (
        (
            node.name or "–", node.state, f"{node.gpus} {node.gpu_type}".strip(), str(node.gpus_ours), str(node.spare),
            f"{max(0, node.cpu_free_millis - node.cpu_ours_millis) / 1000:g}",
            f"{max(0, node.memory_free_mb - node.memory_ours_mb) / 1024:.1f} GiB",
            f"{node.worker_id} {node.worker_state}".strip() or "–", node.why,
        )
        for node in found
    )  # fmt: skip
    print_table(headings, rows, "No node has been reported.")


@app.command
def share(
    name: Name,
    /,
    *,
    off: bool = False,
    workspace: Workspace = "",
    json: Json = False,
) -> None:
    """Let a cluster serve every workspace; for the platform's admin.

    It takes effect with new workers, --off with the next job.

    Parameters
    ----------
    off
        Give it back to the workspace that attached it.
    """
    path = f"cluster/{quote(name)}/shared"
    found = ask(ClusterShared, "PUT", path, {"shared": not off}, {"workspace": workspace})
    if json:
        print_json(found)
        return
    if found.shared:
        print_sentence(f"{found.name} is shared: workers that start there from now on take work of every workspace.")
    else:
        print_sentence(f"{found.name} serves its own workspace from the next job on.")
    print_sentence("Workers that run there keep what they began with; delete their Jobs if that cannot wait.")


@app.command
def manifest(name: Name, /, *, workspace: Workspace = "") -> None:
    """Print the manifest of a cluster's agent, without the token: that stays in the secret already there.

    levers9 cluster manifest NAME | kubectl apply -f - reinstalls the agent.
    """
    found = _show(name, workspace)
    if not found.manifest:
        raise Refused(f"The manifest of {name} is its owner's.", fix="Ask who attached it.", code=FORBIDDEN)
    print(found.manifest, end="")


@app.command
def leave(
    name: Name,
    /,
    *,
    keep_agent: bool = False,
    yes: bool = False,
    context: ContextName = "",
    kubeconfig: Kubeconfig = None,
    workspace: Workspace = "",
) -> None:
    """Detach a cluster: its tokens end, its pool is forgotten, and the agent's objects are deleted there.

    Work that runs there is lost, and tried again elsewhere where it has retries left. It asks before. The namespace
    stays, and a cluster of another context than the current one is left alone.

    Parameters
    ----------
    keep_agent
        Leave the objects in the cluster alone: no context is needed.
    yes
        Do not ask.
    """
    from .cluster_leaving import detach

    try:
        cluster = _show(name, workspace).cluster
    except Refused as refused:
        if refused.code == NOT_FOUND and not keep_agent:
            _tell_of_strangers(kubeconfig, context, workspace)
        raise
    _make_sure(cluster, yes)
    detach(partial(ask, ClusterLeft, "DELETE", f"{_AT}/{quote(name)}", None, {"workspace": workspace}))
    print_sentence(f"{cluster.name} is detached: its agent's token and those of its workers are good for nothing.")
    if keep_agent or cluster.origin != "attached":
        return
    try:
        removed = trio.run(_in_context, kubeconfig, context, "", partial(_remove, cluster))
    except KeyboardInterrupt:
        print(f"Broken off: some of its objects may still be there. {_by_hand(cluster)}", file=sys.stderr)
        raise
    except (ConfigError, KubeUnavailable, KubeRefused) as error:
        raise Refused("Its objects in the cluster are still there.", str(error), _by_hand(cluster)) from error
    if not removed and cluster.status == "waiting":
        print_sentence("Its agent has never dialled in, and the cluster of this context has nothing of it.")
        return
    if not removed:
        raise Refused("The cluster of this context has nothing of it.", fix=_by_hand(cluster))
    print_sentence(f"{removed} objects of it were deleted in the cluster; namespace {cluster.namespace} stays.")


def _tell_of_strangers(kubeconfig: Path | None, context: str, workspace: str) -> None:
    """Whose objects stayed when they left is told how to delete them. Other control planes may have agents too."""
    from .cluster_leaving import strangers

    async def look(kube: object, _: object) -> tuple[str, ...]:
        known = (await _Calls(workspace).clusters()).clusters
        return await strangers(kube, (one.cluster_id for one in known))  # type: ignore[arg-type]

    with suppress(ConfigError, KubeUnavailable, KubeRefused):
        for how in trio.run(_in_context, kubeconfig, context, "", look):
            print(f"This context has an agent of a cluster that you do not see here. {how}", file=sys.stderr)


async def _remove(cluster: ClusterView, kube: object, _: object) -> int:
    from .kube_context import remove_agent

    return await remove_agent(kube, cluster.cluster_id, cluster.namespace)  # type: ignore[arg-type]


def _by_hand(cluster: ClusterView) -> str:
    from .kube_context import by_hand

    return by_hand(cluster.cluster_id, cluster.namespace)


def _make_sure(cluster: ClusterView, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("Leaving was not confirmed.", "Nobody can be asked here.", "Say --yes.", INVALID)
    count = cluster.workers
    said = f"{count} {plural('worker', count)} {'runs' if count == 1 else 'run'} there. " if count else ""
    with suppress(EOFError):  # Ctrl-D is no yes
        if input(f"{said}Detach {cluster.name}? [y/N] ").strip().lower() in ("y", "yes"):
            return
    raise Refused(f"{cluster.name} stays attached.", code=INVALID)


def _show(name: str, workspace: str) -> ClusterShown:
    return ask(ClusterShown, "GET", f"{_AT}/{quote(name)}", query={"workspace": workspace})
