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


class _Pins(msgspec.Struct, frozen=True):
    """The nodes that a pod may go to: what their labels must be, and a term that must hold, of those that there are."""

    selector: Json
    terms: tuple[tuple[list[Json], list[Json]], ...]  # what labels, and what names must be
    any_of_terms: bool


def place(pod: Json, nodes: Iterable[Json], used: Mapping[str, Counter[str]]) -> str | Unschedulable:
    """The name of the first node that takes the pod. `used` has what is taken of each node's extended resources."""
    why: Counter[str] = Counter()
    asked, pins = asked_of(pod), _pins_of(pod)  # once, and not for each node
    for node in nodes:
        name = text_at(node, "metadata", "name")
        objection = _objection(pod, pins, asked, node, used.get(name, Counter()))
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


def _objection(pod: Json, pins: _Pins, asked: Counter[str], node: Json, used: Counter[str]) -> str:
    if not _matches(pins, node):
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


def _pins_of(pod: Json) -> _Pins:
    rule = map_at(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(
        (list_at(each, "matchExpressions"), list_at(each, "matchFields")) for each in list_at(rule, "nodeSelectorTerms")
    )
    return _Pins(map_at(pod, "spec", "nodeSelector"), terms, bool(rule))


def _matches(pins: _Pins, node: Json) -> bool:
    names = {"metadata.name": text_at(node, "metadata", "name")}
    terms = [of_labels for of_labels, of_names in pins.terms if all(_meets(term, names) for term in of_names)]
    if pins.any_of_terms and not terms:
        return False
    labels = texts_at(node, "metadata", "labels")
    if any(labels.get(key) != value for key, value in pins.selector.items()):
        return False
    return not pins.any_of_terms or any(all(_meets(term, labels) for term in each) for each in terms)


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
