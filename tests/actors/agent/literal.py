"""Kubernetes' rule for what a pod takes, written slowly and literally from its text (reference, section 5.1).

It reads plain data, knows nothing of our structs, and asks for one resource at a time.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "Ti": Fraction(1024**4),
    "Pi": Fraction(1024**5),
    "Ei": Fraction(1024**6),
}


def quantity(text: str) -> Fraction:
    """A quantity, exactly, but for what is finer than a thousand-millionth."""
    for suffix in sorted(FACTORS, key=len, reverse=True):
        if text.endswith(suffix):
            exact = Fraction(Decimal(text.removesuffix(suffix))) * FACTORS[suffix]
            break
    else:
        exact = Fraction(Decimal(text))
    finest = abs(exact) * 10**9
    rounded = Fraction(math.ceil(finest), 10**9)
    return rounded if exact >= 0 else -rounded


def takes(pod: dict[str, Any], resource: str) -> Fraction:
    """What a pod takes of a resource."""
    spec, status = pod["spec"], pod.get("status", {})

    def in_spec(container: dict[str, Any]) -> Fraction:
        return of((container.get("resources") or {}).get("requests"))

    def of(quantities: dict[str, str] | None) -> Fraction:
        return quantity((quantities or {}).get(resource, "0"))

    def status_of(container: dict[str, Any]) -> dict[str, Any]:
        both = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
        resizable = container in spec["containers"] or container.get("restartPolicy") == "Always"
        found = [one for one in both if one["name"] == container["name"]]
        return found[0] if found and resizable else {}

    def allocated(container: dict[str, Any]) -> Fraction:
        known = status_of(container).get("allocatedResources")
        return in_spec(container) if known is None else of(known)

    def actuated(container: dict[str, Any]) -> Fraction:
        known = status_of(container).get("resources")
        return allocated(container) if known is None else of(known.get("requests"))

    def base(request: Any) -> Fraction:
        inits = spec.get("initContainers") or []
        peaks = []
        for index, container in enumerate(inits):
            before = [one for one in inits[:index] if one.get("restartPolicy") == "Always"]
            peaks.append(request(container) + sum((request(one) for one in before), Fraction(0)))
        sidecars = [one for one in inits if one.get("restartPolicy") == "Always"]
        together = sum((request(one) for one in [*spec["containers"], *sidecars]), Fraction(0))
        return max([together, *peaks])

    infeasible = status.get("resize") == "Infeasible" or any(
        one["type"] == "PodResizePending" and one["status"] == "True" and one["reason"] == "Infeasible"
        for one in status.get("conditions", [])
    )
    seen = [base(actuated), base(allocated)]
    result = max(seen) if infeasible else max([base(in_spec), *seen])
    result += sum((of(one["resources"]) for one in status.get("nodeAllocatableResourceClaimStatuses", [])), Fraction(0))
    whole = (spec.get("resources") or {}).get("requests") or {}
    if resource in whole and resource in ("cpu", "memory"):
        asked = quantity(whole[resource])
        granted = asked if status.get("allocatedResources") is None else of(status["allocatedResources"])
        in_force = granted if status.get("resources") is None else of(status["resources"].get("requests"))
        result = max(granted, in_force) if infeasible else max(asked, granted, in_force)
    return result + of(spec.get("overhead"))
