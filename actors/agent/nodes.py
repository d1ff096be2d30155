"""From a Node, and what others take of it, to what is told of it."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from ...kube.cards import Cards, cards_of
from ...kube.flavours import flavour_of
from ...kube.objects import Node, Quantities, Taint
from ...kube.quantities import MILLI, NANO, down, nanos
from ...model.clusters import Flavour
from ...model.nodes import NodeState
from ...model.resources import Capacity
from ...wire.cluster import NodeReport
from .accounts import Total
from .labels import told_labels
from .taints import keeping_away

_MIB: Final = 1 << 20
_WHY_MAX: Final = 300  # characters


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What we keep of a Node. `pods_max` None is not known; `away` says why it is not ready, "" when it is."""

    name: str
    uid: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    cordoned: str
    away: str
    cpu_milli: int
    memory_bytes: int
    pods_max: int | None
    cards: Cards
    flavour: Flavour
    odd: bool

    @property
    def ready(self) -> bool:
        """Whether its kubelet is heard: what it says of its pods is so."""
        return not self.away


class _Offered:
    """Quantities of a node, some of which may be none."""

    def __init__(self, node: Node) -> None:
        self._quantities: Quantities = node.status.allocatable or node.status.capacity
        self.odd = False

    def amount(self, name: str) -> int | None:
        if name not in self._quantities:
            return None
        amount = nanos(self._quantities[name])
        if amount is None or amount < 0:
            self.odd = True
            return 0
        return amount


def facts_of(node: Node) -> NodeFacts:
    """What matters of a Node."""
    offered = _Offered(node)
    pods = offered.amount("pods")
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels={sys.intern(key): sys.intern(value) for key, value in node.metadata.labels.items()},
        taints=node.spec.taints or (),
        cordoned=_cordoned(node),
        away=_away(node),
        cpu_milli=down(offered.amount("cpu") or 0, MILLI),
        memory_bytes=down(offered.amount("memory") or 0, NANO),
        pods_max=None if pods is None else down(pods, NANO),
        cards=cards_of(node),
        flavour=flavour_of(node),
        odd=offered.odd,
    )


def _cordoned(node: Node) -> str:
    if node.metadata.deletion_timestamp:
        return "it is being deleted"
    return "it is cordoned" if node.spec.unschedulable else ""


def _away(node: Node) -> str:
    ready = next((condition for condition in node.status.conditions or () if condition.type == "Ready"), None)
    if ready is None:
        return "its kubelet has not reported yet"
    why = (ready.message or ready.reason).rstrip(".") or "no reason is given"
    return "" if ready.status == "True" else f"it is not ready: {why}"


def report_of(facts: NodeFacts, taken: Total, *, gpu_type: str, selected: bool) -> NodeReport:
    """What is told of a node. `taken` is what pods that are not ours take; `selected` is as in `taints`."""
    cards = 0 if taken.claims else facts.cards.count
    left = _Left(facts, taken, cards)
    full = _why_full(facts, left, wants_cards=bool(gpu_type))
    away = keeping_away(facts.taints, selected=selected)
    state, why = _state(facts, away, full)
    whys = (why, facts.cards.why, _why_claims(taken, facts), left.why(), _why_odd(facts, taken))
    return NodeReport(
        name=facts.name,
        uid=facts.uid,
        state=state,
        allocatable=_capacity(facts.cpu_milli, facts.memory_bytes, cards, gpu_type),
        free=_capacity(left.cpu_milli, left.memory_bytes, left.cards, gpu_type),
        labels=told_labels(facts.labels),
        why=_sentence(whys),
    )


class _Left:
    """What others leave; what is below zero is nothing."""

    def __init__(self, facts: NodeFacts, taken: Total, cards: int) -> None:
        self.cards = cards - (taken.cards[facts.cards.kind] if cards else 0)
        self.cpu_milli = facts.cpu_milli - taken.cpu_milli
        self.memory_bytes = facts.memory_bytes - taken.memory_bytes
        self.pods = None if facts.pods_max is None else facts.pods_max - taken.pods
        named = (("cards", self.cards), ("CPU", self.cpu_milli), ("memory", self.memory_bytes))
        self._over = tuple(name for name, left in named if left < 0)
        self.cards, self.cpu_milli = max(0, self.cards), max(0, self.cpu_milli)
        self.memory_bytes = max(0, self.memory_bytes)

    def why(self) -> str:
        """Of what more was asked for than there is."""
        return f"its pods asked for more {' and '.join(self._over)} than it has" if self._over else ""


def _capacity(cpu_milli: int, memory_bytes: int, cards: int, gpu_type: str) -> Capacity:
    memory_mib = down(memory_bytes, _MIB)
    return Capacity(cpu_milli=cpu_milli, memory_mib=memory_mib, gpu_count=cards, gpu_type=gpu_type if cards else "")


def _state(facts: NodeFacts, away: tuple[Taint, ...], full: str) -> tuple[NodeState, str]:
    if facts.away:
        return NodeState.NOT_READY, facts.away
    if facts.cordoned:
        return NodeState.CORDONED, facts.cordoned
    if away:
        return NodeState.TAINTED, f"it is tainted {', '.join(_words(taint) for taint in away)}"
    return (NodeState.FULL, full) if full else (NodeState.READY, "")


def _words(taint: Taint) -> str:
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def _why_full(facts: NodeFacts, left: _Left, *, wants_cards: bool) -> str:
    if wants_cards and not left.cards:
        return "it has no card" if not facts.cards.count else "none of its cards is free"
    if left.pods is not None and left.pods < 1:
        return f"it runs as many pods as it may, {facts.pods_max}"
    return ""


def _why_claims(taken: Total, facts: NodeFacts) -> str:
    if not taken.claims or not facts.cards.count:
        return ""
    return "pods there claimed devices, and which cards these are is not known"


def _why_odd(facts: NodeFacts, taken: Total) -> str:
    if facts.odd:
        return "a quantity of its own cannot be read, and counts as nothing"
    return f"requests of {taken.odd} of its pods cannot be read, and count as nothing" if taken.odd else ""


def _sentence(whys: tuple[str, ...]) -> str:
    """What is odd, as one sentence."""
    text = "; ".join(filter(None, whys))
    text = text[: _WHY_MAX - 1] + "…" if len(text) > _WHY_MAX else text
    return text[:1].upper() + text[1:] + ("." if text else "")
