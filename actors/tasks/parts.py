"""Long lists in parts, each of which fits a frame together with its envelope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from ...model.figures import FRAME_MAX_BYTES
from ...wire.client import TaskResult
from ...wire.work import AttemptOrder

PART_BYTES: Final = FRAME_MAX_BYTES // 2  # an inline payload of the largest size goes alone, beside its names
_ITEM_BYTES: Final = 128  # names, numbers and framing of one item, about

T = TypeVar("T")


def parts(items: Iterable[T], size_bytes: Callable[[T], int]) -> Iterator[tuple[T, ...]]:
    """The items in order, in parts of about half a frame; an item larger than that goes alone."""
    part: list[T] = []
    room = PART_BYTES
    for item in items:
        size = _ITEM_BYTES + size_bytes(item)
        if part and size > room:
            yield tuple(part)
            part, room = [], PART_BYTES
        part.append(item)
        room -= size
    if part:
        yield tuple(part)


def order_bytes(order: AttemptOrder) -> int:
    """The size of an attempt's arguments."""
    return len(order.arguments.data)


def result_bytes(result: TaskResult) -> int:
    """The size of a result, or of the failure in its place."""
    size = len(result.result.data) if result.result is not None else 0
    failure = result.failure
    if failure is None:
        return size
    return size + len(failure.exception) + 4 * (len(failure.what) + len(failure.why) + len(failure.traceback))
