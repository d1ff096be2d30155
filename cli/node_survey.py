"""What a look at a cluster's nodes tells before it joins: whose Kubernetes, and what a selector would lend. Pure."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ..kube.cards import cards_of
from ..kube.flavours import flavour_of_all
from ..kube.objects import Node
from ..model.clusters import CARD_RESOURCES, Flavour
from ..model.selectors import Operator, Term, parse
from ..model.sentences import plural

_ONE_WITHOUT: Final = "The one node that is lent has no card."
_PRODUCTS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
_LAB: Final = "levers9.dev/lab"
_SHOWN: Final = 6  # values and labels, at most


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes there are, how many the selector names, and how many cards those have.

    `here` says that pods run on this very machine, as processes: it is a lab.
    """

    flavour: Flavour
    nodes: int
    matched: int
    cards: int
    advice: tuple[str, ...]
    here: bool = False

    @property
    def sentence(self) -> str:
        """What the selector names."""
        of = f" of {self.nodes}" if self.matched != self.nodes else ""
        return f"{self.matched}{of} {plural('node', self.nodes)} with {self.cards} {plural('card', self.cards)}"


def survey(nodes: Sequence[Node], selector: str, gpu_type: str = "") -> Survey:
    """Look at all nodes of a cluster. Raises `Refused` for what is no selector."""
    terms = parse(selector)
    matched = [node for node in nodes if all(term.matches(node.metadata.labels) for term in terms)]
    cards = sum(cards_of(node).count for node in matched)
    return Survey(
        flavour=flavour_of_all(nodes),
        nodes=len(nodes),
        matched=len(matched),
        cards=cards,
        advice=(*_advice(nodes, matched, terms, cards), *_other_cards(matched, gpu_type)),
        here=bool(nodes) and all(_LAB in node.metadata.labels for node in nodes),
    )


def _advice(nodes: Sequence[Node], matched: Sequence[Node], terms: Sequence[Term], cards: int) -> Iterator[str]:
    if not nodes:
        yield "The cluster has no nodes yet: the agent waits for one."
    elif not matched:
        yield "The selector names none of its nodes."
        yield from _near(nodes, terms)
    elif not cards:
        yield f"None of the {len(matched)} nodes that are lent has a card." if matched[1:] else _ONE_WITHOUT
        yield from _why_no_card(nodes, matched)


def _why_no_card(nodes: Sequence[Node], matched: Sequence[Node]) -> Iterator[str]:
    whys = Counter(why for node in matched if (why := cards_of(node).why))
    for why, count in whys.most_common(_SHOWN):
        yield f"{count} {plural('node', count)}: {why}."
    elsewhere = [node for node in nodes if cards_of(node).count]
    if elsewhere:
        names = ", ".join(node.metadata.name for node in elsewhere[:_SHOWN])
        yield f"These have some: {names}."
    elif not whys:
        resources = " or ".join(CARD_RESOURCES)
        yield f"No node of the cluster reports {resources}: is the vendor's device plugin installed?"


def _other_cards(matched: Sequence[Node], gpu_type: str) -> Iterator[str]:
    """Cards that call themselves something else than what functions are to ask for."""
    told = (
        next((node.metadata.labels[key] for key in _PRODUCTS if node.metadata.labels.get(key)), "") for node in matched
    )
    meant = _letters(re.split(r"[-_ ]", gpu_type.strip())[0])  # H100 of H100-80GB: how much memory is written many ways
    other = Counter(product for product in told if product and meant not in _letters(product))
    if other:
        yield f"By their labels not all cards are {gpu_type}: {_counted(other)}. Is it another --gpu, or --selector?"


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _near(nodes: Sequence[Node], terms: Sequence[Term]) -> Iterator[str]:
    """For each condition that no node meets, what there is instead."""
    for term in terms:
        if any(term.matches(node.metadata.labels) for node in nodes):
            continue
        values = Counter(node.metadata.labels[term.key] for node in nodes if term.key in node.metadata.labels)
        if values and term.operator is not Operator.ABSENT:
            yield f"{term.key} has these values: {_counted(values)}."
        else:
            yield _other_keys(nodes, term.key)


def _other_keys(nodes: Sequence[Node], key: str) -> str:
    keys = Counter(label for node in nodes for label in node.metadata.labels)
    close = difflib.get_close_matches(key, list(keys), n=3, cutoff=0.5)
    same_end = [label for label in keys if label.rpartition("/")[2] == key.rpartition("/")[2] and label not in close]
    found = Counter({label: keys[label] for label in [*same_end, *close]} or keys)
    return f"No node has a label {key}. There are: {_counted(found)}."


def _counted(found: Counter[str]) -> str:
    shown = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    words = [f"{name or '(empty)'} ({count} {plural('node', count)})" for name, count in shown[:_SHOWN]]
    return ", ".join(words) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
