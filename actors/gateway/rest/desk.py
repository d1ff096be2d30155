"""What the handlers are given, and how a request gets to one, once it is known who speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route as HttpPath

from ....model.ids import Chance
from ....model.routes import Route
from ....model.states import TokenKind
from ....model.tokens import Principal
from ....store.face import Store
from ....store.objects import Objects
from ....store.wakeups import Wakeups
from ..auth import Gate, check_privacy, counted_address
from ..logs import LogReader
from ..questions import Questions
from ..relay import RelayStatistics
from ..tenancy import Tenancy


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Everything that handlers use. `clock` is Unix seconds; `secret` draws so many random bytes.

    `journal_dir` is where the scheduler of this host keeps its journal. `external_url` is where clusters dial us, and
    `ca_pem` are certificates that they trust beside their system's.
    """

    gate: Gate
    store: Store
    objects: Objects
    wakeups: Wakeups
    tenancy: Tenancy
    logs: LogReader
    questions: Questions
    chance: Chance
    clock: Callable[[], float]
    secret: Callable[[int], bytes]
    statistics: Callable[[], RelayStatistics]
    behind_tls: bool = False
    journal_dir: Path | None = None
    external_url: str = ""
    ca_pem: str = ""


@dataclass(frozen=True)
class Call:
    """One request, and who makes it."""

    request: Request
    principal: Principal
    desk: Desk

    @property
    def scope(self) -> str | None:
        """The workspace to which reading is bound, or None for the platform's admin, who sees all of them."""
        return None if self.principal.kind is TokenKind.CLUSTER_ADMIN else self.principal.workspace_id

    def speaking_for(self, workspace_id: str) -> Principal:
        """The caller, in the workspace of what the request is about: the platform's admin acts in any."""
        return msgspec.structs.replace(self.principal, workspace_id=workspace_id)

    def parameter(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        """A query parameter."""
        return self.request.query_params.get(name, default)


Handler = Callable[[Call], Awaitable[Response]]


async def principal_of(desk: Desk, connection: HTTPConnection, route: Route) -> Principal:
    """Who makes this request. Raises `Refused` when that is unclear, not allowed, or was said in plain text."""
    address = client_address(connection, desk.behind_tls)
    authorization = connection.headers.get("authorization", "")
    if authorization:
        check_privacy(
            secure=connection.url.scheme in ("https", "wss"),
            address=connection.client.host if connection.client else "",
            forwarded_proto=connection.headers.get("x-forwarded-proto", ""),
            behind_tls=desk.behind_tls,
        )
    return await desk.gate.admit(authorization, route, address)


def client_address(connection: HTTPConnection, behind_tls: bool) -> str:
    """Whose tries are counted."""
    seen = connection.client.host if connection.client else "unknown"
    return counted_address(seen, connection.headers.get("x-forwarded-for", ""), behind_tls=behind_tls)


def path_of(desk: Desk, route: Route, handler: Handler) -> HttpPath:
    """The route of the table, served by `handler` once its caller is known."""
    method, _, template = str(route).partition(" ")

    async def endpoint(request: Request) -> Response:
        principal = await principal_of(desk, request, route)
        return await handler(Call(request, principal, desk))

    return HttpPath(template, endpoint, methods=[method], name=route.name)
