"""What pools are called: a cluster by the name that its workspace gave it, which is not the name of its pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ..errors import NEVER_FITS, Refused

TOLD_MAX: Final = 20  # names in one refusal


class Named(Protocol):
    """What is known of a pool, where it is told whom it serves, whose it is, and what that workspace calls it."""

    @property
    def pool(self) -> str:
        """Its own name."""
        ...

    @property
    def serves(self) -> str:
        """The one workspace whose work it takes, "" for any."""
        ...

    @property
    def owner(self) -> str:
        """The workspace that attached it, "" for the platform's own."""
        ...

    @property
    def known_as(self) -> str:
        """What its owner calls it, "" where that is its own name."""
        ...


def called(pool: Named, usable: Iterable[Named], workspace_id: str) -> str:
    """What a workspace calls one of the pools that it may use: a cluster by its short name, if that is no other's."""
    if not pool.known_as or pool.owner == workspace_id:
        return pool.known_as or pool.pool
    others = (other for other in usable if other.pool != pool.pool)
    return pool.pool if any(pool.known_as in (other.pool, other.known_as) for other in others) else pool.known_as


def names_of(usable: Sequence[Named], workspace_id: str) -> tuple[str, ...]:
    """What a workspace calls the pools that it may use, in order."""
    return tuple(sorted({called(pool, usable, workspace_id) for pool in usable}))


def resolved(name: str, usable: Sequence[Named], workspace_id: str) -> str:
    """The pool that a workspace means: its own cluster of that name, a pool, or the one shared cluster of that name.

    Raises `Refused` with the names that it may use.
    """
    own = [one.pool for one in usable if one.owner == workspace_id and one.known_as == name]
    exact = [one.pool for one in usable if one.pool == name]
    shared = sorted({one.pool for one in usable if one.owner != workspace_id and one.known_as == name})
    if own or exact:
        return (own or exact)[0]
    if len(shared) == 1:
        return shared[0]
    what = f"Several shared clusters are called {name!r}." if shared else f"There is no pool {name!r}."
    raise Refused(what, fix=f"Pools you may use: {_listed(names_of(usable, workspace_id))}.", code=NEVER_FITS)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - TOLD_MAX} more" if len(names) > TOLD_MAX else ""
    return ", ".join(names[:TOLD_MAX]) + more
