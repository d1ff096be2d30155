"""What can be done to a tray: faults, and what undoes them."""

from __future__ import annotations

import enum
from typing import Final

from ..errors import Refused
from ..kube.face import Kube
from ..kube.kinds import NODES
from .kubelet import Kubelet


class Verb(enum.StrEnum):
    """A fault, or its opposite."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    POWER_OFF = "power-off"
    POWER_ON = "power-on"
    PARTITION = "partition"
    HEAL = "heal"
    SLOW = "slow"
    STEADY = "steady"
    FAIL_PULL = "fail-pull"
    PULL_AGAIN = "pull-again"
    EVICT = "evict"
    LOSE_CARD = "lose-card"
    REGAIN_CARD = "regain-card"
    SPLIT_DOMAIN = "split-domain"
    JOIN_DOMAIN = "join-domain"


SLOW_S: Final = 3.0  # unless it is said otherwise

DONE: Final = {
    Verb.CORDON: "{node} takes no new pods. Undo: levers9 lab uncordon {node}.",
    Verb.UNCORDON: "{node} takes pods again.",
    Verb.POWER_OFF: "{node} has no power: its pods are gone at once. Undo: levers9 lab power-on {node}.",
    Verb.POWER_ON: "{node} has power.",
    Verb.PARTITION: "{node} is cut off; what runs there goes on. Undo: levers9 lab heal {node}.",
    Verb.HEAL: "{node} is connected.",
    Verb.SLOW: "{node} reacts {slow_s:g} s late. Undo: levers9 lab steady {node}.",
    Verb.STEADY: "{node} reacts at once.",
    Verb.FAIL_PULL: "{node} can't pull images, and has none left. Undo: levers9 lab pull-again {node}.",
    Verb.PULL_AGAIN: "{node} pulls images again.",
    Verb.EVICT: "{node} has evicted its pods.",
    Verb.LOSE_CARD: "{node} has {cards} cards left. Undo: levers9 lab regain-card {node}.",
    Verb.REGAIN_CARD: "{node} has {cards} cards.",
    Verb.SPLIT_DOMAIN: "{node} is alone in an NVLink domain. Undo: levers9 lab join-domain {node}.",
    Verb.JOIN_DOMAIN: "{node} is in its NVLink domain.",
}


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
    return DONE[verb].format(node=kubelet.name, slow_s=faults.slow_s, cards=len(kubelet.tray.healthy))


async def _change_cards(kubelet: Kubelet, lost: int) -> None:
    faults = kubelet.tray.faults
    if not 0 <= faults.lost_cards + lost <= len(kubelet.tray.plan.cards):
        raise Refused(f"{kubelet.name} has lost {faults.lost_cards} of {len(kubelet.tray.plan.cards)} cards.")
    faults.lost_cards += lost
    if kubelet.tray.reachable:
        await kubelet.tell_status()
