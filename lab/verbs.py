"""What can be done to a tray: faults, and what undoes them."""

from __future__ import annotations

import enum
from typing import Final


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
SLOWEST_S: Final = 600.0

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
    Verb.LOSE_CARD: "{node} offers {cards} of {all_cards} cards. Undo: levers9 lab regain-card {node}.",
    Verb.REGAIN_CARD: "{node} offers {cards} of {all_cards} cards.",
    Verb.SPLIT_DOMAIN: "{node} is alone in an NVLink domain. Undo: levers9 lab join-domain {node}.",
    Verb.JOIN_DOMAIN: "{node} is in its NVLink domain.",
}
