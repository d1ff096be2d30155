"""Which cards the code of a container sees: its own, and none where it was given none. Pure.

A worker that sees a part of its machine's cards itself gives those on by their names: its card 0 is the first of them.
In a pod NVIDIA_VISIBLE_DEVICES lists the cards of the pod by UUID, and the driver there numbers them from 0: so the
container runtime is told UUIDs, and CUDA numbers.
This is a word to drivers and libraries, not a wall: code of the process runtime is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_CUDA: Final = "CUDA_VISIBLE_DEVICES"
_NVIDIA: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_LIST: Final = frozenset({"", "all", "none", "void"})  # words of NVIDIA's container runtime that name no card


def card_variables(cards: Sequence[int], worker_cards: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a container with these numbers of a worker's cards; nothing on a worker without any.

    `environment` is the worker's own.
    """
    if not worker_cards:
        return {}
    shown = _named(cards, _names(environment, _CUDA))
    listed = _names(environment, _NVIDIA)
    devices = _named(cards, listed) if listed else shown
    return {_CUDA: shown, _NVIDIA: devices or "void", "LEVERS9_CARDS": ",".join(map(str, cards))}


def visible_cards(environment: Mapping[str, str]) -> int | None:
    """How many cards a list in the environment gives this process; None where there is no list."""
    for name in (_CUDA, _NVIDIA):
        names = _names(environment, name)
        if names:
            return len(names)
    return None


def _names(environment: Mapping[str, str], variable: str) -> list[str]:
    names = [name.strip() for name in environment.get(variable, "").split(",") if name.strip()]
    return [] if len(names) == 1 and names[0].lower() in _NO_LIST else names


def _named(cards: Sequence[int], names: Sequence[str]) -> str:
    return ",".join(names[card] if card < len(names) else str(card) for card in cards)
