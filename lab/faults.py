"""Doing to a tray what a verb says."""

from __future__ import annotations

from ..errors import Refused
from ..kube.face import Kube
from ..kube.kinds import NODES
from .kubelet import Kubelet
from .verbs import DONE, Verb


async def perform(verb: Verb, kubelet: Kubelet, kube: Kube, slow_s: float) -> str:
    """Do it; returns a sentence for a person. Raises `Refused` where there is nothing to lose."""
    faults = kubelet.tray.faults
    match verb:
        case Verb.CORDON | Verb.UNCORDON:
            await kube.patch(NODES, kubelet.name, {"spec": {"unschedulable": verb is Verb.CORDON}})
        case Verb.POWER_OFF | Verb.POWER_ON:
            kubelet.set_power(verb is Verb.POWER_ON)
        case Verb.PARTITION | Verb.HEAL:
            kubelet.set_connection(verb is Verb.HEAL)
        case Verb.SLOW | Verb.STEADY:
            faults.slow_s = slow_s if verb is Verb.SLOW else 0.0
        case Verb.FAIL_PULL | Verb.PULL_AGAIN:
            faults.pulls = verb is Verb.PULL_AGAIN
            kubelet.tray.images.clear()
            kubelet.nudge()
        case Verb.EVICT:
            await kubelet.evict()
        case Verb.LOSE_CARD | Verb.REGAIN_CARD:
            await _change_cards(kubelet, 1 if verb is Verb.LOSE_CARD else -1)
        case Verb.SPLIT_DOMAIN | Verb.JOIN_DOMAIN:
            faults.split = verb is Verb.SPLIT_DOMAIN
            await kubelet.tell_labels()
    tray = kubelet.tray
    counts = {"cards": len(tray.healthy), "all_cards": len(tray.plan.cards)}
    return DONE[verb].format(node=kubelet.name, slow_s=faults.slow_s, **counts)


async def _change_cards(kubelet: Kubelet, lost: int) -> None:
    faults = kubelet.tray.faults
    if not 0 <= faults.lost_cards + lost <= len(kubelet.tray.plan.cards):
        raise Refused(f"{kubelet.name} has lost {faults.lost_cards} of {len(kubelet.tray.plan.cards)} cards.")
    faults.lost_cards += lost
    if kubelet.tray.reachable:
        await kubelet.tell_status()
