"""How many whole cards a node has: replicas, slices and shares are none, whatever resource they come as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..model.clusters import CARD_RESOURCES
from .objects import Node, Quantities
from .quantities import NANO, down, nanos

_MACHINE_MAX: Final = 16  # cards of the largest machines there are; more is a multiple of them
_SHARED_PRODUCT: Final = "-SHARED"
_MIG_PRODUCT: Final = "-MIG-"
_SLICES: Final = ("nvidia.com/mig-", "amd.com/cpx", "amd.com/spx", "amd.com/dpx", "amd.com/qpx")
_SHARES: Final = ("nvidia.com/gpu.shared", "amd.com/gpu.shared")
_MULTIPLIERS: Final = (
    "nvidia.com/gpumem",
    "nvidia.com/gpucores",
    "volcano.sh/vgpu-",
    "4pd.io/vgpu",
    "aliyun.com/gpu-mem",
)
_MULTIPLIER_NOTES: Final = ("hami.io/node-", "4pd.io/node-")  # annotations
_PHYSICAL: Final = ("nvidia.com/gpu.count", "amd.com/gpu.count")  # labels
_PHYSICAL_RESOURCE: Final = "aliyun.com/gpu-count"
_LABELLED: Final = ("nvidia.com/gpu.present", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")


class Cards(msgspec.Struct, frozen=True):
    """Whole cards of a node, of the kind at `kind` of `CARD_RESOURCES`. `why` says what is odd about them."""

    count: int = 0
    kind: int = 0
    why: str = ""


def cards_of(node: Node) -> Cards:
    """The whole cards that a node can give to pods."""
    offered = node.status.allocatable or node.status.capacity
    counts = [max(0, _whole(offered, name)) for name in CARD_RESOURCES]
    kind = max(range(len(counts)), key=lambda place: (counts[place], -place))
    count = counts[kind]
    if not count:
        return Cards(why=_why_none(node, offered))
    multiplied = _why_multiplied(node, offered, count)
    if multiplied:
        return Cards(kind=kind, why=f"{count} of {CARD_RESOURCES[kind]} are no whole cards: {multiplied}")
    whys = [_why_fewer(node, count, kind)]
    if sum(1 for one in counts if one) > 1:
        whys.append("it has cards of two makers, and offers those of one")
    if _any(offered, _SLICES) or _any(offered, _SHARES):
        whys.append("its slices and shares of further cards are not offered")
    return Cards(count, kind, "; ".join(filter(None, whys)))


def _why_multiplied(node: Node, offered: Quantities, count: int) -> str:
    """Why that many are not so many cards; "" when they are."""
    labels = node.metadata.labels
    product = labels.get("nvidia.com/gpu.product", "")
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    if (
        product.endswith(_SHARED_PRODUCT)
        or strategy not in ("none", "")
        or _number(labels, "nvidia.com/gpu.replicas") > 1
    ):
        return "its cards are shared by time slicing or MPS"
    if _MIG_PRODUCT in product:
        return "its cards are cut by MIG"
    if _any(offered, _MULTIPLIERS) or any(key.startswith(_MULTIPLIER_NOTES) for key in node.metadata.annotations):
        return "a plugin there shares cards among pods"
    physical = [_number(labels, name) for name in _PHYSICAL] + [_whole(offered, _PHYSICAL_RESOURCE)]
    there = next((number for number in physical if number > 0), 0)
    if there and count > there:
        return f"it has {there}"
    return "no machine has so many" if count > _MACHINE_MAX else ""


def _why_none(node: Node, offered: Quantities) -> str:
    if _any(offered, _SLICES):
        return "its cards are cut by MIG, and slices are no whole cards"
    if _any(offered, _SHARES):
        return "its cards are offered as shares only"
    if any(_whole(node.status.capacity, name) > 0 for name in CARD_RESOURCES):
        return "none of its cards is healthy"
    if any(name in node.metadata.labels for name in _LABELLED):
        return "its labels tell of cards and it reports none: its device plugin may not run"
    return ""


def _why_fewer(node: Node, count: int, kind: int) -> str:
    whole = _whole(node.status.capacity, CARD_RESOURCES[kind])
    lost = whole - count
    return f"{lost} of its {whole} cards {'is' if lost == 1 else 'are'} not healthy" if lost > 0 else ""


def _any(offered: Quantities, prefixes: tuple[str, ...]) -> bool:
    """Whether there is more than nothing of such a resource: keys with 0 are left over."""
    return any(name.startswith(prefixes) and _whole(offered, name) > 0 for name in offered)


def _whole(offered: Quantities, name: str) -> int:
    amount = nanos(offered[name]) if name in offered else 0
    return down(amount or 0, NANO)


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0
