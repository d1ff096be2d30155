"""Joining: look, register, apply, and wait until the agent has dialled in and said which nodes there are."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec
import trio

from ..errors import INVALID, DeadlinePassed, KubeRefused, KubeUnavailable, Refused
from ..kube import kinds
from ..kube.face import Kube
from ..model.figures import JOIN_LOOK_S
from ..model.loopback import is_loopback
from ..wire.rest.clusters import ClusterAttached, ClusterList, ClusterShown, ClusterView
from .agent_state import AgentSeen, seen_of, tail_of, told_of_log
from .kube_context import Context, Part, agent_pods, agent_there, apply, by_hand, check_rights, parts_of, remove_moved
from .node_survey import Survey, survey
from .progress import Progress

LOOKS_SOON_S: Final = 0.5  # who sits before it sees it at once
_SOON_FOR_S: Final = 30.0
_LOG_AFTER_S: Final = 3.0  # an agent that runs needs a moment to dial
_LOG_LINES: Final = 20


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants: the body of the request, and how long they wait. `wait_s` 0 is not at all."""

    name: str
    gpu_type: str
    namespace: str
    selector: str
    flavor: str
    worker_image: str
    image_pull_secret: str
    host_network: bool | None
    wait_s: float


@dataclass(frozen=True)
class Plane:
    """The control plane, as far as joining needs it."""

    register: Callable[[Wish], Awaitable[ClusterAttached]]
    show: Callable[[str], Awaitable[ClusterShown]]
    clusters: Callable[[], Awaitable[ClusterList]]


async def join(wish: Wish, plane: Plane, kube: Kube, context: Context, progress: Progress) -> ClusterView:
    """Attach the cluster of a context. Raises `Refused` with what to do, and `DeadlinePassed` when nobody dials in."""
    known = (await plane.clusters()).clusters  # whoever is unknown to the control plane hears it first
    progress.tell(f"Context {context.name}, at {context.server}.")
    await check_rights(kube, context, wish.namespace)
    seen = await _survey(wish, kube, progress)
    wish = msgspec.structs.replace(wish, flavor=wish.flavor or str(seen.flavour))
    await _check_namespace(wish, known, kube, progress)
    attached = await plane.register(wish)
    _tell_registered(attached, progress)
    _warn_of_url(attached.url, seen, progress)
    parts = parts_of(attached.manifest)
    progress.tell(f"Applying {_named(parts)}.")
    await apply(kube, parts)
    if before := _namespace_before(wish, attached, known):
        await _move_out(attached.cluster.cluster_id, before, kube, progress)
    if not wish.wait_s:
        return attached.cluster
    return await wait(wish, attached, plane, progress, kube)


async def hand_out(wish: Wish, plane: Plane, progress: Progress) -> ClusterView:
    """Register, print the manifest for somebody else to apply, and wait for the agent."""
    known = (await plane.clusters()).clusters
    attached = await plane.register(wish)
    _tell_registered(attached, progress)
    if before := _namespace_before(wish, attached, known):
        left = by_hand(attached.cluster.cluster_id, before, moved=True)
        progress.tell(f"It moves out of namespace {before}. Delete what is left there with:{left}")
    print(attached.manifest, end="", flush=True)
    _end_output()
    progress.tell("The manifest is on standard output; apply it with: kubectl apply -f FILE.")
    if not wish.wait_s:
        return attached.cluster
    return await wait(wish, attached, plane, progress, None)


def _end_output() -> None:
    """Who reads us from a pipe, `kubectl apply -f -` say, does nothing before it ends: it would wait for us, and we for
    the agent.
    """
    ours = sys.stdout is sys.__stdout__
    if not ours or sys.stdout.isatty():
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


async def _survey(wish: Wish, kube: Kube, progress: Progress) -> Survey:
    """What the nodes tell, told."""
    nodes = (await kube.list(kinds.NODES)).items
    seen = survey(nodes, wish.selector, wish.gpu_type)
    named = "The selector names" if wish.selector else "All nodes are lent:"
    progress.tell(f"{named} {seen.sentence}.")
    for advice in seen.advice:
        progress.tell(f"Warning: {advice}")
    if seen.flavour and not wish.flavor:
        progress.tell(f"Its nodes say that it is {seen.flavour.upper()}.")
    return seen


async def _check_namespace(wish: Wish, clusters: Sequence[ClusterView], kube: Kube, progress: Progress) -> None:
    """Raises `Refused` where another cluster's agent would lose its place."""
    there = await agent_there(kube, wish.namespace)
    if not there:
        return
    known = next((one for one in clusters if one.cluster_id == there), None)
    if known is None:
        progress.tell(f"Namespace {wish.namespace} has an agent that this control plane does not know: it is replaced.")
    elif known.name != wish.name or not known.owned:
        raise Refused(
            f"Namespace {wish.namespace} of this cluster already runs the agent of {known.name}.",
            "A namespace has one agent.",
            f"Give this one another --namespace, or leave {known.name} first.",
            INVALID,
        )


def _namespace_before(wish: Wish, attached: ClusterAttached, known: Sequence[ClusterView]) -> str:
    """The namespace out of which its agent moves; "" where it stays, or is new."""
    before = next((one.namespace for one in known if one.cluster_id == attached.cluster.cluster_id), "")
    return before if before != wish.namespace else ""


async def _move_out(cluster_id: str, namespace: str, kube: Kube, progress: Progress) -> None:
    """What stays there is dead, for its token is void: that it cannot be deleted ends no joining."""
    try:
        removed = await remove_moved(kube, cluster_id, namespace)
    except (KubeUnavailable, KubeRefused) as error:
        left = by_hand(cluster_id, namespace, moved=True)
        progress.tell(f"Warning: what is left of it in namespace {namespace} could not be deleted: {error} Try:{left}")
        return
    progress.tell(f"It moved out of namespace {namespace}: {removed} objects of it were deleted there.")


def _tell_registered(attached: ClusterAttached, progress: Progress) -> None:
    name = attached.cluster.name
    said = "was attached already: its agent gets a new token" if attached.renewed else "is registered"
    progress.tell(f"{name} {said}. Its agent dials {attached.url}.")


def _warn_of_url(url: str, seen: Survey, progress: Progress) -> None:
    """Pods of a cluster in a container on this machine do not reach its loopback either; those of a lab do."""
    parts = urlsplit(url)
    here_only = is_loopback(parts.hostname or "")
    if here_only and not seen.here:
        progress.tell(
            f"Warning: {url} is reached from this machine only. Start the control plane with --external-url, which "
            "names it as pods of that cluster reach it."
        )
    elif parts.scheme == "http" and not here_only:
        progress.tell(f"Warning: {url} is not encrypted, and tokens do not travel so: the agent will refuse to dial.")


def _named(parts: tuple[Part, ...]) -> str:
    return ", ".join(f"{part.kind.singular} {part.name}" for part in parts)


# Waiting


async def wait(
    wish: Wish, attached: ClusterAttached, plane: Plane, progress: Progress, kube: Kube | None
) -> ClusterView:
    """Until the agent has reported. Raises `DeadlinePassed` with what is known of why it has not."""
    looker = _Looker(attached, kube, wish.namespace)
    state = ""
    with trio.move_on_after(wish.wait_s):
        while True:
            cluster = (await plane.show(wish.name)).cluster
            if _has_come(cluster, attached):
                progress.done()
                return cluster
            state = await looker.look(cluster)
            progress.show(state)
            await trio.sleep(LOOKS_SOON_S if progress.spent_s < _SOON_FOR_S else JOIN_LOOK_S)
    progress.done()
    for line in looker.log:
        progress.tell(f"  | {line}")
    raise DeadlinePassed(_too_late(wish, state, kube is not None))


def _has_come(cluster: ClusterView, attached: ClusterAttached) -> bool:
    """A report that is newer than what there was; of a renewed one, from an agent with the new token."""
    before = attached.cluster
    newer = cluster.last_seen_s > before.last_seen_s and cluster.status == "online"
    return newer and (not before.agent_started_at_s or cluster.agent_started_at_s != before.agent_started_at_s)


class _Looker:
    """Looks at the agent's pod through the person's own context, and at its log where that may tell more."""

    def __init__(self, attached: ClusterAttached, kube: Kube | None, namespace: str) -> None:
        self._cluster_id = attached.cluster.cluster_id
        self._kube = kube
        self._namespace = namespace
        self._begun_s = trio.current_time()
        self.log: tuple[str, ...] = ()

    async def look(self, cluster: ClusterView) -> str:
        """Where it stands, in a sentence."""
        if cluster.status == "online":
            return "The agent has dialled in, and looks at the nodes."
        if self._kube is None:
            return "The agent has not dialled in yet."
        try:
            return await self._through(self._kube)
        except (KubeUnavailable, KubeRefused) as error:
            return f"The agent has not dialled in yet, and its pod cannot be looked at: {error}"

    async def _through(self, kube: Kube) -> str:
        seen: AgentSeen = seen_of(await agent_pods(kube, self._cluster_id, self._namespace))
        if not seen.reads_log or (not seen.ended and trio.current_time() - self._begun_s < _LOG_AFTER_S):
            return seen.state
        text = await kube.log_tail(seen.pod, self._namespace, container="agent", lines=_LOG_LINES)
        self.log = tail_of(text)
        told = told_of_log(text, ended=seen.ended)
        return f"{seen.state} {told}" if told else seen.state


def _too_late(wish: Wish, state: str, applied: bool) -> str:
    what = f"The agent of {wish.name} did not dial in within {wish.wait_s:g} s."
    if not applied:
        return f"{what} It is registered: apply the manifest, and see `levers9 cluster list`."
    look = f"kubectl -n {wish.namespace} logs deploy/levers9-agent"
    return f"{what} {state} It is registered and applied, and goes on trying. See `{look}`, and `levers9 cluster list`."


def warn_of_nodes(cluster: ClusterView, progress: Progress) -> None:
    """What the agent itself found odd about its nodes."""
    if cluster.problem:
        again = " Join again under the same name with another --selector." if "selector" in cluster.problem else ""
        progress.tell(f"Warning: {cluster.problem.rstrip('.')}.{again}")
    elif not cluster.matched and not cluster.nodes:
        progress.tell("Warning: the selector names no node. Join again under the same name with another --selector.")
    elif not any(node.gpus for node in cluster.nodes):
        progress.tell("Warning: none of its nodes has a card that Kubernetes knows of.")
