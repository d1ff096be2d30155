"""What one pod takes of its node, by Kubernetes' own rule (reference, section 5.1).

Amounts are integers of a thousand-millionth while they are added up, and rounded up once, for the whole pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from ...kube.objects import Container, ContainerStatus, Pod, Quantities
from ...kube.quantities import MILLI, NANO, nanos, up
from ...model.clusters import CARD_RESOURCES

_RESOURCES: Final = ("cpu", "memory", *CARD_RESOURCES)
_POD_LEVEL: Final = ("cpu", "memory")  # of the resources that we read, those that a pod may set as a whole
_TERMINAL: Final = ("Succeeded", "Failed")
_ALWAYS: Final = "Always"
_INFEASIBLE: Final = "Infeasible"
_COMPUTE_DOMAIN: Final = "computedomain"  # claims of channels between cards, which are no cards


class Uses(msgspec.Struct, frozen=True, gc=False):
    """What a pod takes. `cards` are in the order of `CARD_RESOURCES`. One of several thousand: kept small.

    `odd` when a quantity was none, or below zero, and counted as nothing; `claims` when it may hold cards that were
    claimed as devices, which no request shows.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    cards: tuple[int, ...] = (0, 0)
    odd: bool = False
    claims: bool = False


class _Reading:
    """Amounts by resource, of quantities that may be wrong."""

    def __init__(self) -> None:
        self.odd = False

    def amounts(self, quantities: Quantities | None) -> list[int]:
        return [self._amount(quantities, name) for name in _RESOURCES]

    def _amount(self, quantities: Quantities | None, name: str) -> int:
        if not quantities or name not in quantities:
            return 0
        amount = nanos(quantities[name])
        if amount is None or amount < 0:
            self.odd = True
            return 0
        return amount


def counts(pod: Pod) -> bool:
    """Whether a pod takes room: it is bound to a node and has not ended, though it may be pulling, or terminating."""
    return bool(pod.spec.node_name) and pod.status.phase not in _TERMINAL


def uses_of(pod: Pod) -> Uses:
    """The effective request of a pod."""
    reading = _Reading()
    amounts = _over_resize(pod, reading)
    for claimed in pod.status.node_allocatable_resource_claim_statuses or ():
        amounts = _plus(amounts, reading.amounts(claimed.resources))  # step 6
    _replace_by_pod_level(amounts, pod, reading)
    if pod.spec.overhead:
        amounts = _plus(amounts, reading.amounts(pod.spec.overhead))
    cards = tuple(up(amount, NANO) for amount in amounts[2:])
    return Uses(
        cpu_milli=up(amounts[0], MILLI),
        memory_bytes=up(amounts[1], NANO),
        cards=cards,
        odd=reading.odd,
        claims=not any(cards) and _claims_devices(pod),
    )


def _replace_by_pod_level(amounts: list[int], pod: Pod, reading: _Reading) -> None:
    """Step 3: what the pod asks for as a whole stands instead of the sum, and never for cards."""
    whole = pod.spec.resources.requests if pod.spec.resources is not None else None
    if whole:
        held = _whole(pod, reading.amounts(whole), reading)
        for place, name in enumerate(_RESOURCES):
            if name in _POD_LEVEL and name in whole:
                amounts[place] = held[place]


def _whole(pod: Pod, asked: list[int], reading: _Reading) -> list[int]:
    """Step 4, of the pod as a whole."""
    told, granted = pod.status.resources, pod.status.allocated_resources
    if told is None and granted is None:
        return asked
    allocated = asked if granted is None else reading.amounts(granted)
    in_force = allocated if told is None else reading.amounts(told.requests)
    return _held(pod, asked, allocated, in_force)


def _over_resize(pod: Pod, reading: _Reading) -> list[int]:
    """Step 4, of its containers."""
    asked = _aggregate(pod, lambda container: reading.amounts(_requests(container)))
    statuses = {status.name: status for status in _statuses(pod)}
    if all(status.resources is None and status.allocated_resources is None for status in statuses.values()):
        return asked

    def allocated(container: Container) -> list[int]:
        status = statuses.get(container.name)
        known = status.allocated_resources if status is not None else None
        return reading.amounts(_requests(container) if known is None else known)

    def in_force(container: Container) -> list[int]:
        status = statuses.get(container.name)
        resources = status.resources if status is not None else None
        return allocated(container) if resources is None else reading.amounts(resources.requests)

    return _held(pod, asked, _aggregate(pod, allocated), _aggregate(pod, in_force))


def _held(pod: Pod, asked: list[int], allocated: list[int], in_force: list[int]) -> list[int]:
    """Of what was asked, what was allocated and what is in force, the most; without what can never be."""
    there = _most((allocated, in_force))
    return there if _infeasible(pod) else _most((asked, there))


def _aggregate(pod: Pod, requests: Callable[[Container], list[int]]) -> list[int]:
    """Steps 1 and 2: containers and sidecars together, or an init container with the sidecars before it."""
    sidecars = [0] * len(_RESOURCES)
    peak = sidecars
    for container in pod.spec.init_containers or ():
        amounts = requests(container)
        if container.restart_policy == _ALWAYS:
            sidecars = _plus(sidecars, amounts)
            peak = _most((peak, sidecars))
        else:
            peak = _most((peak, _plus(sidecars, amounts)))
    running = sidecars
    for container in pod.spec.containers:
        running = _plus(running, requests(container))
    return _most((running, peak))


def _requests(container: Container) -> Quantities | None:
    return container.resources.requests if container.resources is not None else None


def _statuses(pod: Pod) -> Iterable[ContainerStatus]:
    """Of containers that can be resized: those of the app, and sidecars."""
    sidecars = [one.name for one in pod.spec.init_containers or () if one.restart_policy == _ALWAYS]
    yield from pod.status.container_statuses or ()
    yield from (status for status in pod.status.init_container_statuses or () if status.name in sidecars)


def _infeasible(pod: Pod) -> bool:
    return pod.status.resize == _INFEASIBLE or any(
        condition.type == "PodResizePending" and condition.status == "True" and condition.reason == _INFEASIBLE
        for condition in pod.status.conditions or ()
    )


def _claims_devices(pod: Pod) -> bool:
    return any(
        _COMPUTE_DOMAIN not in (claim.resource_claim_template_name or claim.resource_claim_name or "").lower()
        for claim in pod.spec.resource_claims or ()
    )


def _plus(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [left + right for left, right in zip(one, other, strict=True)]


def _most(several: Iterable[Sequence[int]]) -> list[int]:
    return [max(amounts) for amounts in zip(*several, strict=True)]
