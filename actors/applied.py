"""Whether a committed write applied to all that memory was sure of. Pure, so that policies may ask."""

from __future__ import annotations

from collections.abc import Set

from ..errors import OutcomeUnknown
from ..store.operations import Answer, Applied, Operation


def applied_to(answer: Answer) -> frozenset[str]:
    """The identities to which a write applied. Raises TypeError for an answer of another kind."""
    if not isinstance(answer, Applied):
        raise TypeError(f"the store answered {type(answer).__name__}, not what it applied to")
    return frozenset(answer.ids)


def require_all(operation: Operation, expected: Set[str], answer: Answer) -> None:
    """Raises `OutcomeUnknown` when a committed write left out a row that memory was sure of: the truth is otherwise."""
    missed = expected - applied_to(answer)
    if missed:
        first = ", ".join(sorted(missed)[:3])
        raise OutcomeUnknown(f"{type(operation).__name__} did not apply to {len(missed)} of its rows: {first}")
