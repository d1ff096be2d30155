"""What a container's process is given: `$(NAME)` expanded, fields of its pod, paths of its mounts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ..kube.quantities import NANO, nanos, up
from .objects import Container, Pod, ResourceRef

_REFERENCE: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class PodPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod has come to be: what fields of its status say of it."""

    node: str
    host_ip: str
    pod_ip: str


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, `$$` a dollar; a name that nobody knows stays as it is."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def field_of(pod: Pod, path: str, place: PodPlace) -> str:
    """A field of a pod by its path, as the downward API gives it; "" for one that it lacks.

    Raises `ValueError` for a path that the downward API does not know.
    """
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": place.node,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
        "metadata.labels": _lines(meta.labels),
        "metadata.annotations": _lines(meta.annotations),
    }
    if path in plain:
        return plain[path]
    if keyed := _KEYED.fullmatch(path):
        return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")
    raise ValueError(f"the downward API has no field {path}")


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))


def resource_of(containers: Sequence[Container], own: Container, ref: ResourceRef, room: Mapping[str, str]) -> str:
    """What `resourceFieldRef` says: a request or limit in units of the divisor, rounded up; without one the node's."""
    named = next((each for each in containers if each.name == ref.container_name), own)
    kind, _, resource = ref.resource.partition(".")
    asked = named.resources
    table = ((asked.limits if kind == "limits" else asked.requests) if asked else None) or {}
    amount = quantity(str(table.get(resource, room.get(resource, "0"))))
    return str(up(amount, quantity(ref.divisor) or NANO))


def quantity(text: str) -> int:
    """A Kubernetes quantity in thousand-millionths. Raises `ValueError` for what is none."""
    found = nanos(text)
    if found is None:
        raise ValueError(f"{text} is no quantity")
    return found


class MountPaths:
    """Where the paths at which a container sees its volumes really are, for a process that sees the whole machine.

    Every mention of a mount's path, in its command, arguments and variables, is rewritten: a path counts where it
    begins a word and ends with it or goes on with a slash.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` has the real folder of each mount path."""
        self._places = {path.rstrip("/") or "/": real for path, real in places.items()}
        paths = sorted((re.escape(path) for path in self._places if path != "/"), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w./-])({'|'.join(paths)})(?![\w.-])") if paths else None

    def rewrite(self, text: str) -> str:
        """A text with each mount's path replaced."""
        return self._pattern.sub(lambda match: self._places[match[1]], text) if self._pattern else text
