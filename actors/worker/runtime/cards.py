"""Which cards the code of a container sees: its own, and none where it was given none. Pure.

A worker's cards are those that its environment lists, and its card 0 is the first of them:

1. NVIDIA_VISIBLE_DEVICES has UUIDs (GPU-…, MIG-…), as the device plugin of a cluster writes it: these, for CUDA too.
   A worker in a pod is privileged and sees every card of its node; a number there may be somebody else's card, and a
   UUID never is. Numbers in CUDA_VISIBLE_DEVICES choose among the UUIDs.
2. CUDA_VISIBLE_DEVICES has a list: it names a part of the machine's cards, for a worker that was started so.
3. NVIDIA_VISIBLE_DEVICES has numbers: those of the node, in the order of its bus, which CUDA is told to count in.
4. Neither lists any ("all", "void", unset: a plugin that uses CDI, or none): cards are counted from 0. In a pod that
   holds only while it sees no more cards than were ordered; else nobody knows which are its own, and it has none.

A card beyond the list is never named by its number. This is a word to drivers and libraries, not a wall: code of the
process runtime is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

POD_IP: Final = "LEVERS9_POD_IP"  # is set in a pod of a cluster
_CUDA: Final = "CUDA_VISIBLE_DEVICES"
_NVIDIA: Final = "NVIDIA_VISIBLE_DEVICES"
_ORDER: Final = "CUDA_DEVICE_ORDER"
_NO_LIST: Final = frozenset({"", "all", "none", "void"})  # words of NVIDIA's container runtime that name no card
_UUIDS: Final = ("GPU-", "MIG-")


def card_variables(cards: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a container with these numbers of a worker's cards; `environment` is the worker's own."""
    cuda, listed = _names(environment, _CUDA), _names(environment, _NVIDIA)
    shown = _named(cards, _own(cuda, listed))
    devices = shown if _are_uuids(listed) or not listed else _named(cards, listed)
    seen = {_CUDA: shown, _NVIDIA: devices or "void", "LEVERS9_CARDS": ",".join(map(str, cards))}
    by_bus = not cuda and bool(listed) and all(name.isdecimal() for name in listed)
    return seen | ({_ORDER: "PCI_BUS_ID"} if by_bus else {})


def cards_here(ordered: int, devices: int, environment: Mapping[str, str]) -> int:
    """How many of the cards that were ordered this worker has, on a machine whose driver shows so many `devices`.

    Outside pods, and where the driver shows none as on an emulated node, the order is believed.
    """
    listed = _own(_names(environment, _CUDA), _names(environment, _NVIDIA))
    if listed:
        return min(ordered, len(listed))
    if not devices or not environment.get(POD_IP):
        return ordered
    return devices if devices <= ordered else 0


def _own(cuda: Sequence[str], listed: Sequence[str]) -> Sequence[str]:
    """The names of the worker's cards; none where no list has them."""
    if not _are_uuids(listed):
        return cuda or listed
    if _are_uuids(cuda):
        return cuda
    chosen = [listed[int(name)] for name in cuda if name.isdecimal() and int(name) < len(listed)]
    return chosen if cuda and len(chosen) == len(cuda) else listed


def _are_uuids(names: Sequence[str]) -> bool:
    return bool(names) and all(name.startswith(_UUIDS) for name in names)


def _names(environment: Mapping[str, str], variable: str) -> list[str]:
    """What a variable lists. A path is the plugin's way to say that it lists elsewhere."""
    names = [name.strip() for name in environment.get(variable, "").split(",") if name.strip()]
    return [] if len(names) == 1 and (names[0].lower() in _NO_LIST or names[0].startswith("/")) else names


def _named(cards: Sequence[int], names: Sequence[str]) -> str:
    if not names:
        return ",".join(map(str, cards))
    return ",".join(names[card] for card in cards if card < len(names))
