"""Waits that double with each failure."""

from __future__ import annotations

from typing import Final

_DOUBLINGS_MAX: Final = 64  # beyond, any wait has long passed its maximum, and one day no float holds it


def doubled_s(first_s: float, doublings: int, most_s: float) -> float:
    """The first wait, doubled so often, and at most `most_s`."""
    return min(first_s * 2.0 ** min(doublings, _DOUBLINGS_MAX), most_s)
