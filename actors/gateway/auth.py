"""Who speaks, and whether it may: bearer tokens, the table kind × route, and a limit on guessing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from ...errors import FORBIDDEN, RATE_LIMITED, UNAUTHENTICATED, Refused
from ...model.figures import FAILURES_ALLOWED, FAILURES_WITHIN_S, TOKEN_KEPT_S
from ...model.loopback import is_loopback
from ...model.routes import Route, allows
from ...model.states import TokenKind
from ...model.tokens import Principal, hash_of, kind_of, same_hash
from ...store.face import Store
from ...store.operations import FindToken, TokenRow

TOKENS_KEPT: Final = 4096
ADDRESSES_KEPT: Final = 4096


class GateStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate did so far."""

    tokens_kept: int
    lookups: int
    failures: int
    limited: int


class FailureLimit:
    """At most so many failed tries of one address within a minute; the least recent addresses are forgotten first."""

    def __init__(self, allowed: int = FAILURES_ALLOWED, within_s: float = FAILURES_WITHIN_S) -> None:
        self._allowed = allowed
        self._within_s = within_s
        self._tries: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def blocked_for_s(self, address: str, now_s: float) -> float:
        """How long this address has to wait, or 0."""
        since_s, count = self._tries.get(address, (now_s, 0))
        left_s = since_s + self._within_s - now_s
        return max(0.0, left_s) if count >= self._allowed else 0.0

    def failed(self, address: str, now_s: float) -> None:
        """Count one failed try."""
        since_s, count = self._tries.pop(address, (now_s, 0))
        if now_s - since_s >= self._within_s:
            since_s, count = now_s, 0
        self._tries[address] = (since_s, count + 1)
        while len(self._tries) > ADDRESSES_KEPT:
            self._tries.popitem(last=False)


class Gate:
    """Finds the principal of a token and checks its route. `clock` is Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float], replica_token: str = "") -> None:
        self._store = store
        self._clock = clock
        self._replica_hash = hash_of(replica_token) if replica_token else b""
        self._kept: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._limit = FailureLimit()
        self._lookups = self._failures = self._limited = 0

    def statistics(self) -> GateStatistics:
        """What it did so far."""
        return GateStatistics(
            tokens_kept=len(self._kept), lookups=self._lookups, failures=self._failures, limited=self._limited
        )

    def forget(self, token_ids: tuple[str, ...] = ()) -> None:
        """Look these tokens up again at their next use; without ids, all of them."""
        gone = set(token_ids)
        for digest in [key for key, (_, who) in self._kept.items() if not gone or who.token_id in gone]:
            del self._kept[digest]

    async def admit(self, authorization: str, route: Route, address: str) -> Principal:
        """The principal of an `Authorization` header on a route. Raises `Refused`: unknown, forbidden, limited."""
        now_s = self._clock()
        try:
            principal = self._known(authorization, now_s) or await self._try(authorization, address, now_s)
        except Refused as refused:
            if refused.code == UNAUTHENTICATED and authorization:  # without a token nothing was guessed
                self._failures += 1
                self._limit.failed(address, now_s)
            raise
        check_route(principal, route)
        return principal

    def _known(self, authorization: str, now_s: float) -> Principal | None:
        """Tokens in use are not held up by others' failures from the same address."""
        known = self._kept.get(hash_of(authorization.partition(" ")[2].strip()))
        return known[1] if known is not None and now_s - known[0] < TOKEN_KEPT_S else None

    async def _try(self, authorization: str, address: str, now_s: float) -> Principal:
        wait_s = self._limit.blocked_for_s(address, now_s)
        if wait_s:
            self._limited += 1
            raise Refused("Too many failed tries from this address.", fix=f"Wait {wait_s:.0f} s.", code=RATE_LIMITED)
        return await self.principal_of(bearer_of(authorization))

    async def principal_of(self, token: str) -> Principal:
        """Who holds this token. Raises `Refused` for a value that is malformed, unknown or revoked."""
        kind = kind_of(token)
        if kind is None:
            raise _unauthenticated("The token is malformed.", "A token looks like l9_space_ and 43 more characters.")
        digest, now_s = hash_of(token), self._clock()
        if kind is TokenKind.REPLICA and self._replica_hash and same_hash(digest, self._replica_hash):
            return Principal(token_id="replica", workspace_id="", kind=kind)
        known = self._kept.get(digest)
        if known is not None and now_s - known[0] < TOKEN_KEPT_S:
            return known[1]
        return await self._look_up(digest, now_s)

    async def _look_up(self, digest: bytes, now_s: float) -> Principal:
        self._lookups += 1
        (row,) = await self._store.apply(FindToken(hash=digest))
        if not isinstance(row, TokenRow) or not row.active or not same_hash(row.hash, digest):
            self._kept.pop(digest, None)
            raise _unauthenticated(
                "The token is unknown or revoked.", "It may have been revoked, or be another cell's."
            )
        principal = Principal(token_id=row.token_id, workspace_id=row.workspace_id, kind=row.kind, subject=row.subject)
        self._kept[digest] = (now_s, principal)
        while len(self._kept) > TOKENS_KEPT:
            self._kept.popitem(last=False)
        return principal


def bearer_of(authorization: str) -> str:
    """The token in an `Authorization` header. Raises `Refused` where there is none."""
    if not authorization:
        raise _unauthenticated("The token is missing.", "The request has no Authorization header.")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthenticated("The token is malformed.", "The Authorization header is not `Bearer TOKEN`.")
    return token.strip()


def check_route(principal: Principal, route: Route) -> None:
    """Raises `Refused` when the table has no cell for this kind and route."""
    if not allows(route, principal.kind):
        raise Refused(
            f"A token of kind {principal.kind} may not do this ({route}).",
            fix=f"Tokens of these kinds may: {', '.join(kind for kind in TokenKind if allows(route, kind))}.",
            code=FORBIDDEN,
        )


_ALONE: Final = {
    "worker": "A worker's token is for that worker alone.",
    "agent": "An agent's token is for the cluster it was made for alone; `levers9 cluster join` renews it.",
}


def check_subject(principal: Principal, own_id: str, role: str = "worker") -> None:
    """Raises `Refused` when the token of a worker, or of a cluster's agent, is another's."""
    if not own_id or principal.subject != own_id:
        raise Refused(f"This token is not for {role} {own_id!r}.", _ALONE[role], code=FORBIDDEN)


def counted_address(address: str, forwarded_for: str, *, behind_tls: bool) -> str:
    """Whose tries are counted: behind a proxy that ends TLS, the address that the proxy saw, which it names last."""
    return (forwarded_for.rpartition(",")[2].strip() if behind_tls else "") or address


def check_privacy(*, secure: bool, address: str, forwarded_proto: str, behind_tls: bool) -> None:
    """Raises `Refused` for a token that came in plain text over a network.

    `behind_tls` says that our external URL is https: then a proxy ends TLS, and says so in X-Forwarded-Proto.
    """
    if secure or is_loopback(address) or (behind_tls and forwarded_proto in ("https", "wss")):
        return
    raise Refused(
        "A token must not travel in plain text.",
        "This connection is not encrypted, and does not come from this machine.",
        "Use https or wss; give the gateway --cert and --key, or --external-url behind a proxy that ends TLS.",
        FORBIDDEN,
    )


def _unauthenticated(what: str, why: str) -> Refused:
    fix = "Set LEVERS9_TOKEN, or run `levers9 login`; `levers9 token create` makes a new one."
    return Refused(what, why, fix, UNAUTHENTICATED)
