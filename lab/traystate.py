"""A tray as it is now: what faults have done to it, and which of its cards belong to whom. Pure."""

from __future__ import annotations

import msgspec

from ..model.sentences import plural
from .trays import Card, TrayPlan, labels_of, split_domain


class Faults(msgspec.Struct, kw_only=True):
    """What is wrong with a tray."""

    powered: bool = True
    connected: bool = True
    pulls: bool = True
    slow_s: float = 0.0
    lost_cards: int = 0
    split: bool = False


class TrayState:
    """Cards, addresses and faults of a tray."""

    def __init__(self, plan: TrayPlan) -> None:
        self.plan = plan
        self.faults = Faults()
        self.images: set[str] = set()  # those that it has pulled
        self._cards: dict[str, tuple[Card, ...]] = {}  # by pod UID
        self._places: dict[str, int] = {}

    @property
    def reachable(self) -> bool:
        """Whether the tray talks to the API server, and answers it."""
        return self.faults.powered and self.faults.connected

    @property
    def domain(self) -> str:
        """The NVLink domain that it is in."""
        return split_domain(self.plan) if self.faults.split else self.plan.domain

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its node."""
        return labels_of(self.plan, self.domain)

    @property
    def healthy(self) -> tuple[Card, ...]:
        """The cards that are not lost: the last ones go first."""
        return self.plan.cards[: len(self.plan.cards) - self.faults.lost_cards]

    def allocate(self, pod_uid: str, count: int) -> tuple[Card, ...] | None:
        """Give cards to a pod, lowest first; None where there are too few."""
        taken = {card.uuid for cards in self._cards.values() for card in cards}
        free = [card for card in self.healthy if card.uuid not in taken]
        if len(free) < count:
            return None
        self._cards[pod_uid] = chosen = tuple(free[:count])
        return chosen

    def place(self, pod_uid: str) -> int:
        """A place for a pod, which decides its address; the lowest that is free."""
        taken = set(self._places.values())
        self._places[pod_uid] = free = next(place for place in range(254) if place not in taken)
        return free

    def release(self, pod_uid: str, *, place: bool = False) -> None:
        """A pod has ended: its cards are free; with `place` its address as well."""
        self._cards.pop(pod_uid, None)
        if place:
            self._places.pop(pod_uid, None)

    def cards_of(self, pod_uid: str) -> tuple[Card, ...]:
        """The cards of a pod."""
        return self._cards.get(pod_uid, ())

    @property
    def words(self) -> tuple[str, ...]:
        """What is wrong with it, for people."""
        faults = self.faults
        found = (
            ("no power", not faults.powered),
            ("cut off", not faults.connected),
            ("no pulls", not faults.pulls),
            (f"{faults.slow_s:g} s slow", faults.slow_s > 0),
            (f"{faults.lost_cards} {plural('card', faults.lost_cards)} lost", faults.lost_cards > 0),
            ("own domain", faults.split),
        )
        return tuple(word for word, is_so in found if is_so)
