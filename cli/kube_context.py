"""A person's own way to a cluster: their kubeconfig's context, what they may do there, and what is applied by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import msgspec
import yaml

from ..errors import ConfigError, KubeRefused, PeerProtocolError, Refused
from ..kube import kinds
from ..kube.client import open_kube
from ..kube.config import load_config
from ..kube.face import Access, Kind, Kube
from ..kube.objects import Other, Pod
from ..model.clusters import AGENT, CLUSTER_LABEL
from ..model.ids import Chance

MANAGER: Final = "levers9-cli"  # whose fields those are that we apply
_FORBIDDEN: Final = 403
_KINDS: Final[dict[str, Kind[Other]]] = {
    kind.singular: kind
    for kind in (
        kinds.NAMESPACES,
        kinds.SERVICE_ACCOUNTS,
        kinds.CLUSTER_ROLES,
        kinds.CLUSTER_ROLE_BINDINGS,
        kinds.ROLES,
        kinds.ROLE_BINDINGS,
        kinds.SECRETS,
        kinds.DEPLOYMENTS,
    )
}
Body = Mapping[str, object]


class Context(msgspec.Struct, frozen=True):
    """Which cluster a person speaks to, and as what."""

    name: str
    server: str


@asynccontextmanager
async def opened(kubeconfig: Path | None, context: str, without: str) -> AsyncIterator[tuple[Kube, Context]]:
    """The API server of a context, the current one where `context` is "". Raises `ConfigError` with what to do;
    `without` is the flag with which none is needed, "" where it is too late for it.
    """
    try:
        endpoint = await load_config(kubeconfig, context or None)
    except ConfigError as error:
        advice = f" With {without} no context is needed." if without else ""
        raise ConfigError(f"{error}{advice}") from error
    async with open_kube(endpoint, Chance()) as kube:
        yield kube, Context(endpoint.context or "(this pod's)", endpoint.server)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a manifest."""

    kind: Kind[Other]
    name: str
    namespace: str
    body: Body


def parts_of(manifest: str) -> tuple[Part, ...]:
    """The objects of a manifest, in its order. Raises `PeerProtocolError` for one that we cannot apply."""
    return tuple(_part(cast("Body", one)) for one in yaml.safe_load_all(manifest) if one)


def _part(body: Body) -> Part:
    kind = _KINDS.get(str(body.get("kind")))
    metadata = body.get("metadata")
    if kind is None or not isinstance(metadata, Mapping):
        what = f"The manifest has an object of kind {body.get('kind')!r}, which this version does not apply."
        raise PeerProtocolError(f"{what} Use one version on both sides, or --manifest-only and kubectl.")
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return Part(kind=kind, name=name, namespace=namespace, body=rest)


async def check_rights(kube: Kube, context: Context, namespace: str) -> None:
    """Raises `Refused` that names what the person may not do of what joining takes."""
    missing = [one for one in _needed(namespace) if not await kube.allowed(one)]
    if not missing:
        return
    words = "; ".join(_in_words(missing))
    raise Refused(
        f"Your account in context {context.name} may not do everything that joining takes.",
        f"Missing: {words}.",
        "Ask an admin of that cluster to run this, or to apply what --manifest-only prints.",
    )


def _needed(namespace: str) -> Iterator[Access]:
    yield Access(verb="list", plural="nodes")
    for kind in _KINDS.values():
        for verb in ("create", "patch"):
            where = namespace if kind.namespaced else ""
            yield Access(verb=verb, plural=kind.plural, group=kind.group, namespace=where)


def _in_words(missing: Sequence[Access]) -> Iterator[str]:
    verbs: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        verbs.setdefault((one.plural, one.namespace), []).append(one.verb)
    for (plural, namespace), found in verbs.items():
        yield f"{' and '.join(found)} {plural}" + (f" in namespace {namespace}" if namespace else "")


async def apply(kube: Kube, parts: Sequence[Part]) -> None:
    """Apply every object. Raises `Refused` where the person lacks a right that could not be asked for before."""
    for part in parts:
        try:
            await kube.apply(part.kind, part.body, part.namespace, manager=MANAGER)
        except KubeRefused as error:
            raise _not_applied(part, error) from error


def _not_applied(part: Part, error: KubeRefused) -> Refused:
    what = f"{part.kind.singular} {part.name} could not be applied."
    fix = "Nothing else was changed after it; the same command goes on from there."
    if error.status == _FORBIDDEN:
        fix = "Rights can be given only by who has them: ask an admin of that cluster, or hand on --manifest-only."
    return Refused(what, error.message, fix, error.code)


async def remove_agent(kube: Kube, cluster_id: str, namespace: str) -> int:
    """Delete the worker Jobs and the agent of this cluster, and what was made for it; answers how many objects.

    It is looked for in all namespaces where the person may, as an earlier one may have something left. Namespaces stay,
    and so does whatever is not labelled as this cluster's.
    """
    removed = 0
    for kind in _REMOVED:
        removed += await _remove(kube, kind, await _labelled(kube, kind, cluster_id, namespace))
    return removed


async def remove_moved(kube: Kube, cluster_id: str, namespace: str) -> int:
    """Delete what a cluster left in a namespace out of which its agent moved; answers how many objects."""
    removed = 0
    for kind in _REMOVED:
        where = namespace if kind.namespaced else ""
        found = (await kube.list(kind, where, labels=f"{CLUSTER_LABEL}={cluster_id}")).items
        left = [one for one in found if kind.namespaced or one.metadata.name == f"{AGENT}-{namespace}"]
        removed += await _remove(kube, kind, left)
    return removed


def by_hand(cluster_id: str, namespace: str, *, moved: bool = False) -> str:
    """How a person deletes what is left of a cluster, the command on a line of its own; `moved`: its agent stands in
    another namespace now.
    """
    of_it = "deployments,jobs,secrets,rolebindings,roles,serviceaccounts"
    wide = "clusterrolebindings,clusterroles"
    label = f"-n {namespace} -l {CLUSTER_LABEL}={cluster_id}"
    if moved:
        return f"\n  kubectl delete {of_it} {label} && kubectl delete {wide} {AGENT}-{namespace}"
    return f"With a context of that cluster:\n  kubectl delete {of_it},{wide} {label}"


async def _labelled(kube: Kube, kind: Kind[Other], cluster_id: str, namespace: str) -> tuple[Other, ...]:
    label = f"{CLUSTER_LABEL}={cluster_id}"
    try:
        return (await kube.list(kind, labels=label)).items
    except KubeRefused as error:
        if error.status != _FORBIDDEN or not kind.namespaced:
            raise
    return (await kube.list(kind, namespace, labels=label)).items


async def _remove(kube: Kube, kind: Kind[Other], found: Sequence[Other]) -> int:
    metas = [one.metadata for one in found]
    return sum([await kube.delete(kind, meta.name, meta.namespace, uid=meta.uid) for meta in metas])


_REMOVED: Final[tuple[Kind[Other], ...]] = (
    kinds.DEPLOYMENTS,  # the agent first: it makes Jobs
    kinds.SECRETS,
    kinds.ROLE_BINDINGS,
    kinds.ROLES,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.CLUSTER_ROLES,
    kinds.SERVICE_ACCOUNTS,
    Kind(group="batch", version="v1", plural="jobs", singular="Job", type=Other, namespaced=True),
)


async def agent_there(kube: Kube, namespace: str) -> str:
    """The cluster whose agent stands in a namespace by now, "" for none."""
    found = await kube.get(kinds.DEPLOYMENTS, AGENT, namespace)
    return "" if found is None else found.metadata.labels.get(CLUSTER_LABEL, "")


async def agent_pods(kube: Kube, cluster_id: str, namespace: str) -> tuple[Pod, ...]:
    """The pods of an agent."""
    labels = f"app.kubernetes.io/name={AGENT},{CLUSTER_LABEL}={cluster_id}"
    return (await kube.list(kinds.PODS, namespace, labels=labels)).items
