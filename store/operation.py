"""What all operations on the truth, and all that it answers, have in common."""

from __future__ import annotations

import msgspec


class Operation(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all operations."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what the store answers."""


class Applied(Row, frozen=True, kw_only=True):
    """The identities to which a write applied, in the order given."""

    ids: tuple[str, ...] = ()


Answer = Row | tuple[Row, ...] | None
