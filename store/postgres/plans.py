"""How operations become statements: a plan an operation, each write guarded by the epoch within its own statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import asyncpg
import msgspec

from ..operations import Answer, Applied, Operation

Op = TypeVar("Op", bound=Operation)
Record = asyncpg.Record
Arguments = tuple[object, ...]
Values = Callable[[Operation], Arguments]


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """A cheaper statement for the commonest form of a guarded write: one row, under an epoch.

    It applies where the plan's own statement would, and its one row says that it did. No row says nothing: the plan's
    own statement is asked then. `arguments` are None where the operation has another form; the first is the identity.
    """

    sql: str
    arguments: Callable[[Operation], Arguments | None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One or more statements, and how the rows of the last become the answer.

    A `guarded` plan is one statement that checks the epoch given as `$1` itself, so that a group of one operation
    costs one round trip. Its only row is (epoch leads, ids).
    """

    steps: tuple[tuple[str, Values], ...]
    answer: Callable[[Operation, Sequence[Record]], Answer]
    writes: bool
    guarded: bool
    short: Short | None = None


_PLANS: Final[dict[type[Operation], Plan]] = {}


def plan_of(operation: Operation) -> Plan:
    """How this operation is carried out."""
    return _PLANS[type(operation)]


# The lock is on the newest row: a new leader waits for this transaction, or this statement sees the new leader.
LOCK_EPOCH: Final = "SELECT 1 FROM leadership WHERE epoch = $1::int8 AND holder <> '' FOR SHARE"

_GUARDED: Final = f"""
WITH lead AS ({LOCK_EPOCH}),
allowed AS MATERIALIZED (SELECT $1::int8 IS NULL OR EXISTS (SELECT 1 FROM lead) AS yes),
{{body}}
SELECT (SELECT yes FROM allowed), ARRAY(SELECT {{ids}} FROM done {{order}})
"""


def short(
    kind: type[Op],
    sql: str,
    arguments: Callable[[Op], Arguments | None],
) -> None:
    """Add a short statement to a write that is declared. `{lead}` in it stands for the condition on `$1`."""
    found = Short(
        sql=sql.format(lead=f"EXISTS ({LOCK_EPOCH})"),
        arguments=cast("Callable[[Operation], Arguments | None]", arguments),
    )
    _PLANS[kind] = msgspec.structs.replace(_PLANS[kind], short=found)


def write(
    kind: type[Op],
    body: str,
    arguments: Callable[[Op], Arguments],
    *,
    ids: str,
    given: Callable[[Op], Sequence[str]] | None = None,
    order: str = "",
) -> None:
    """Declare a guarded write. `body` is common table expressions that end in `done`; `$2` and on are `arguments`.

    Its rows must come to nothing unless `(SELECT yes FROM allowed)`. The answer is `Applied` with the column `ids` of
    `done`, in the order of `given`, or else in `order`.
    """

    def answer(operation: Operation, rows: Sequence[Record]) -> Applied:
        applied: list[str] = rows[0][1]
        if given is None or len(applied) <= 1:
            return Applied(ids=tuple(applied))
        hits = set(applied)
        return Applied(ids=tuple([one for one in dict.fromkeys(given(cast("Op", operation))) if one in hits]))

    sql = _GUARDED.format(body=body, ids=ids, order=order and f"ORDER BY {order}")
    _PLANS[kind] = Plan(steps=((sql, cast("Values", arguments)),), answer=answer, writes=True, guarded=True)


def read(
    kind: type[Op],
    sql: str,
    arguments: Callable[[Op], Arguments],
    answer: Callable[[Op, Sequence[Record]], Answer],
    *,
    after: tuple[str, Callable[[Op], Arguments]] | None = None,
) -> None:
    """Declare a read, or with `after`, a write whose answer is what a read finds after it."""
    steps: tuple[tuple[str, Values], ...] = ((sql, cast("Values", arguments)),)
    if after is not None:
        steps = ((after[0], cast("Values", after[1])), *steps)
    _PLANS[kind] = Plan(
        steps=steps,
        answer=cast("Callable[[Operation, Sequence[Record]], Answer]", answer),
        writes=after is not None,
        guarded=False,
    )


def nothing(_: Operation) -> Arguments:
    """For statements without arguments."""
    return ()
