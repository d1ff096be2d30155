"""The door for streams: who may come in by which path, and which session it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
import trio

from ...errors import FORBIDDEN, INVALID, NOT_FOUND, Refused
from ...model.figures import STREAMS_MAX
from ...model.ids import Chance
from ...model.routes import Route
from ...model.states import TokenKind
from ...model.tokens import Principal, hash_of
from ...wire.carrier import Carrier
from ...wire.link import Acceptor
from .auth import Gate, bearer_of, check_privacy, check_subject, counted_address
from .relay import Relay
from .stamps import Stamp

STREAM_PATH: Final = "/v1/stream"
RELAY_PATH: Final = "/v1/relay"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ROUTES: Final[dict[tuple[str, str], Route]] = {
    (STREAM_PATH, "client"): Route.STREAM_CLIENT,
    (STREAM_PATH, "worker"): Route.STREAM_WORKER,
    (STREAM_PATH, "agent"): Route.STREAM_AGENT,
    (RELAY_PATH, ""): Route.RELAY,
}
_OF_ONE: Final = {Route.STREAM_WORKER: "worker", Route.STREAM_AGENT: "agent"}


class Knock(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade request, however it came. `headers` have lower-case names; `address` has no port."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    address: str
    secure: bool


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who was let in: its address, its session's name, and the stamp for what it says (none for a relay)."""

    address: str
    token_hash: bytes
    stamp: Stamp | None


class Door:
    """Lets peers and relays in, and serves their sessions. `behind_tls` says that our external URL is https.

    `places` counts the streams of this process, on whichever port they came; those beyond are told 503.
    """

    def __init__(
        self, *, gate: Gate, acceptor: Acceptor, relay: Relay, chance: Chance, behind_tls: bool = False
    ) -> None:
        self._gate = gate
        self._acceptor = acceptor
        self._relay = relay
        self._chance = chance
        self._behind_tls = behind_tls
        self.places = trio.CapacityLimiter(STREAMS_MAX)

    async def admit(self, knock: Knock) -> Visitor:
        """Who this is. Raises `Refused`: not_found, unauthenticated, forbidden or invalid."""
        route = _route_of(knock)
        authorization = knock.headers.get("authorization", "")
        if authorization:
            proto = knock.headers.get("x-forwarded-proto", "")
            check_privacy(
                secure=knock.secure, address=knock.address, forwarded_proto=proto, behind_tls=self._behind_tls
            )
        principal = await self._gate.admit(authorization, route, self._counted_address(knock))
        if route in _OF_ONE:
            return self._one(principal, knock, _OF_ONE[route])
        return self._client(principal, knock) if route is Route.STREAM_CLIENT else self._replica(knock)

    async def serve(self, visitor: Visitor, carrier: Carrier) -> None:
        """Run one carrier of an admitted visitor until it ends; its session may outlive it."""
        if visitor.stamp is None:
            own = partial(self._relay.serve_relay, name=visitor.address, token_hash=visitor.token_hash)
        else:
            own = partial(self._relay.serve_peer, stamp=visitor.stamp, token_hash=visitor.token_hash)
        await self._acceptor.serve(carrier, name=visitor.address, on_link=own)

    def _counted_address(self, knock: Knock) -> str:
        forwarded = knock.headers.get("x-forwarded-for", "")
        return counted_address(knock.address, forwarded, behind_tls=self._behind_tls)

    def _one(self, principal: Principal, knock: Knock, role: str) -> Visitor:
        """Whose token is good for one worker, or for one cluster's agent, alone."""
        own_id = _id_of(knock, "id")
        check_subject(principal, own_id, role)
        return _peer(knock, role, f"{role}/{own_id}", principal.workspace_id, principal)

    def _client(self, principal: Principal, knock: Knock) -> Visitor:
        """A client's id is its own choice, within its token; without one, each connection begins anew."""
        own_id = _id_of(knock, "id") if knock.query.get("id") else self._chance.id("c")
        workspace = _workspace_of(principal, knock)
        return _peer(knock, "client", f"client/{principal.token_id}.{own_id}", workspace, principal)

    def _replica(self, knock: Knock) -> Visitor:
        return Visitor(address=f"relay/{_id_of(knock, 'gateway')}", token_hash=_hash_of(knock), stamp=None)


def _hash_of(knock: Knock) -> bytes:
    return hash_of(bearer_of(knock.headers.get("authorization", "")))


def _peer(knock: Knock, role: str, address: str, workspace: str, principal: Principal) -> Visitor:
    stamp = Stamp(role=role, source=address, workspace=workspace, kind=str(principal.kind))
    return Visitor(address=address, token_hash=_hash_of(knock), stamp=stamp)


def _route_of(knock: Knock) -> Route:
    peer = knock.query.get("peer", "") if knock.path == STREAM_PATH else ""
    route = _ROUTES.get((knock.path, peer))
    if route is None:
        peers = "client, or worker or agent with &id=ID"
        fix = f"Streams are {STREAM_PATH}?peer= with {peers}, and {RELAY_PATH}?gateway=ID."
        raise Refused(f"There is no stream at {knock.path[:100]!r} for peer {peer[:20]!r}.", fix=fix, code=NOT_FOUND)
    return route


def _workspace_of(principal: Principal, knock: Knock) -> str:
    asked = knock.query.get("workspace", "")
    if principal.kind is TokenKind.CLUSTER_ADMIN and asked:
        return asked
    if asked not in ("", principal.workspace_id):
        raise Refused("This token is for another workspace.", code=FORBIDDEN)
    if not principal.workspace_id:
        fix = "Use a workspace's token; `levers9 workspace create` makes one."
        raise Refused("Functions run in a workspace.", "This token belongs to none.", fix, FORBIDDEN)
    return principal.workspace_id


def _id_of(knock: Knock, name: str) -> str:
    value = knock.query.get(name, "")
    if not _ID.fullmatch(value):
        raise Refused(f"{name}={value[:100]!r} is not an id.", "1 to 100 of letters, digits, . _ -", code=INVALID)
    return value
