"""Pages: what people are shown fits a message, however many clusters there are and however many nodes they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from ...model.figures import FRAME_MAX_BYTES

PAGE_BYTES: Final = FRAME_MAX_BYTES // 2  # what stands beside it has the other half
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_encoder: Final = msgspec.msgpack.Encoder()


def page(items: Sequence[T], start: int, show: Callable[[T], S]) -> tuple[S, ...]:
    """As many as fit from the `start`-th on, and one at least where there is one: who asks goes on behind the last."""
    shown: list[S] = []
    left = PAGE_BYTES
    for item in islice(items, max(0, start), None):
        one = show(item)
        left -= len(_encoder.encode(one))
        if shown and left < 0:
            break
        shown.append(one)
    return tuple(shown)
