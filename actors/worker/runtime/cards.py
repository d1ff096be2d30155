"""Which cards the code of a container sees: its own, and none where it was given none. Pure.

A worker that sees a part of its machine's cards itself gives those on by their names: its card 0 is the first of them.
This is a word to drivers and libraries, not a wall: code of the process runtime is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_CUDA: Final = "CUDA_VISIBLE_DEVICES"


def card_variables(cards: Sequence[int], worker_cards: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a container with these numbers of a worker's cards; nothing on a worker without any.

    `environment` is the worker's own.
    """
    if not worker_cards:
        return {}
    names = [name.strip() for name in environment.get(_CUDA, "").split(",") if name.strip()]
    shown = ",".join(names[card] if card < len(names) else str(card) for card in cards)
    numbers = ",".join(map(str, cards))
    return {_CUDA: shown, "NVIDIA_VISIBLE_DEVICES": shown or "void", "LEVERS9_CARDS": numbers}
