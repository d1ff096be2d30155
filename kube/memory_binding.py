"""Which node a pod goes to, as the scheduler has it: pins, cordons, taints, and extended resources such as cards. Pure.

CPU and memory are not counted here: what they leave is the node reporter's to tell, and the real scheduler's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from .bodies import Json, list_at, map_at, number_at, text_at, texts_at

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"


class Unschedulable(msgspec.Struct, frozen=True):
    """No node takes a pod, in the scheduler's words."""

    message: str


def place(pod: Json, nodes: Iterable[Json], used: Mapping[str, Counter[str]]) -> str | Unschedulable:
    """The name of the first node that takes the pod. `used` has what is taken of each node's extended resources."""
    why: Counter[str] = Counter()
    asked = asked_of(pod)
    for node in nodes:
        name = text_at(node, "metadata", "name")
        objection = _objection(pod, asked, node, used.get(name, Counter()))
        if not objection:
            return name
        why[objection] += 1
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
    return Unschedulable(
        f"0/{why.total()} nodes are available: {told}." if why else "no nodes available to schedule pods"
    )


def asked_of(pod: Json) -> Counter[str]:
    """The extended resources that a pod holds."""
    asked: Counter[str] = Counter()
    for container in list_at(pod, "spec", "containers"):
        resources = map_at(container, "resources")
        for key in {**map_at(resources, "limits"), **map_at(resources, "requests")}:
            if "/" in key:
                count = number_at(resources, "requests", key)
                asked[key] += count or number_at(resources, "limits", key)
    return asked


def _objection(pod: Json, asked: Counter[str], node: Json, used: Counter[str]) -> str:
    if not _matches(pod, node):
        return _NO_MATCH
    for taint in list_at(node, "spec", "taints"):
        if taint.get("effect") in _KEEPS_AWAY and not _tolerated(pod, taint):
            if taint.get("key") == "node.kubernetes.io/unschedulable":
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint {{{text_at(taint, 'key')}: {text_at(taint, 'value')}}}"
    for key, count in sorted(asked.items()):
        if count > number_at(node, "status", "allocatable", key) - used[key]:
            return f"Insufficient {key}"
    return ""


def _tolerated(pod: Json, taint: Json) -> bool:
    for toleration in list_at(pod, "spec", "tolerations"):
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key = text_at(toleration, "key")
        if toleration.get("operator") == "Exists" and key in ("", taint.get("key")):
            return True
        if key == taint.get("key") and text_at(toleration, "value") == text_at(taint, "value"):
            return True
    return False


def _matches(pod: Json, node: Json) -> bool:
    labels = texts_at(node, "metadata", "labels")
    if any(labels.get(key) != value for key, value in map_at(pod, "spec", "nodeSelector").items()):
        return False
    rule = map_at(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not rule:
        return True
    names = {"metadata.name": text_at(node, "metadata", "name")}
    return any(
        all(_meets(term, labels) for term in list_at(each, "matchExpressions"))
        and all(_meets(term, names) for term in list_at(each, "matchFields"))
        for each in list_at(rule, "nodeSelectorTerms")
    )


def _meets(term: Json, labels: Mapping[str, str]) -> bool:
    key, values = text_at(term, "key"), term.get("values")
    wanted = values if isinstance(values, list) else []
    match term.get("operator"):
        case "In":
            return labels.get(key) in wanted
        case "NotIn":
            return labels.get(key) not in wanted
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
