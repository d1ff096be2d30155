"""HTTP to one API server: credentials that are renewed, answers that are waited for, errors that say what to do."""

from __future__ import annotations

import contextlib
import email.utils
import math
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import httpx2
import msgspec
import structlog
import trio

from .. import __version__
from ..errors import KubeUnavailable, LeversError
from ..model.ids import Chance
from .endpoint import Endpoint
from .statuses import error_of, read_status, retry_after_s
from .unreachable import sentence

CONNECT_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 60.0  # the API server gives up on a request after as long
TRIES: Final = 4  # of a request that the server asks to send again later
CONNECTIONS: Final = 64  # at once; the agent needs a handful, the lab's kubelets more
KEPT_IDLE_S: Final = 45.0
CLOSE_WITHIN_S: Final = 2.0
PROBE_AFTER_S: Final = 20  # of silence: a peer that is gone is noticed within PROBE_AFTER_S + 3 × PROBE_EVERY_S
PROBE_EVERY_S: Final = 10
PROBES: Final = 3
JSON: Final = "application/json"
_KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", PROBE_AFTER_S),
            ("TCP_KEEPINTVL", PROBE_EVERY_S),
            ("TCP_KEEPCNT", PROBES),
            ("TCP_USER_TIMEOUT", 1_000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S)),
        )
        if hasattr(socket, name)
    ),
]

MakeClient = Callable[[Endpoint], httpx2.AsyncClient]
_log: Final = structlog.get_logger()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `what` is for people, such as "list pods"."""

    method: str
    target: str  # path and query
    what: str
    body: bytes = b""
    content_type: str = JSON
    quiet_s: float = ANSWER_WITHIN_S  # how long nothing may come
    begins_within_s: float = math.inf  # how long until the answer begins, with the connection that it needs

    @property
    def may_repeat(self) -> bool:
        """Whether asking twice does no more than asking once."""
        return self.method != "POST"


class Reply(msgspec.Struct, frozen=True):
    """An answer that is no error, or one that the caller wants to see. `at_s` as in `Listing.served_at_s`."""

    status: int
    body: bytes
    at_s: float = 0.0


class Connection:
    """Requests to an API server, over pooled connections. Made by `open_connection`."""

    def __init__(self, endpoint: Endpoint, chance: Chance, make: MakeClient) -> None:
        self._endpoint = endpoint
        self._chance = chance
        self._make = make
        self._http = make(endpoint)
        self._former: httpx2.AsyncClient | None = None  # watches may still run over it
        self._renewing = trio.Lock()
        self._renewed_at_s = trio.current_time()

    @property
    def endpoint(self) -> Endpoint:
        """Where it is, as it was last learned."""
        return self._endpoint

    async def ask(self, request: Request, *, seen: frozenset[int] = frozenset()) -> Reply:
        """The answer. Errors are raised, but those whose HTTP status is in `seen` are the caller's."""
        for tries_left in range(TRIES - 1, -1, -1):
            async with self._answer(request) as response:
                body = await self._whole(request, response)
            if response.is_success or response.status_code in seen:
                return Reply(response.status_code, body, _unix_s(response.headers.get("date", "")))
            status = read_status(body, response.status_code)
            wait_s = retry_after_s(status, response.headers.get("retry-after", ""))
            if wait_s is None or not tries_left:
                raise error_of(status, self._named(request))
            _log.info("the API server asks to come again", what=request.what, status=status.code, wait_s=wait_s)
            await trio.sleep(wait_s + self._chance.uniform(0.0, wait_s / 2))
        raise AssertionError("the last try answers or raises")

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """The answer's bytes as they come. Raises as `ask` does, also while they are read."""
        async with self._answer(request) as response:
            if not response.is_success:
                body = await self._whole(request, response)
                raise error_of(read_status(body, response.status_code), self._named(request))
            pieces = self._pieces(request, response)
            try:
                yield pieces
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_WITHIN_S):
                    await _break_off(response, pieces)

    async def aclose(self) -> None:
        """Close every connection."""
        for client in (self._former, self._http):
            if client is not None:
                await client.aclose()

    async def _whole(self, request: Request, response: httpx2.Response) -> bytes:
        try:
            return await response.aread()
        except httpx2.HTTPError as error:
            raise self._unavailable(request, error) from error

    async def _pieces(self, request: Request, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    yield piece
        except httpx2.HTTPError as error:
            raise self._unavailable(request, error) from error

    @contextlib.asynccontextmanager
    async def _answer(self, request: Request) -> AsyncIterator[httpx2.Response]:
        """An answer begun, with credentials that are renewed once where they are no longer known."""
        await self._renew_when_due()
        used = self._endpoint
        response = await self._send(request)
        if response.status_code == 401 and used.renew is not None:
            await response.aclose()
            await self._renew(used)
            response = await self._send(request)
        try:
            yield response
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_WITHIN_S):
                await response.aclose()

    async def _send(self, request: Request) -> httpx2.Response:
        try:
            return await self._send_once(request)
        except httpx2.RemoteProtocolError as error:
            # A kept connection that the server closed just as we used it.
            if not request.may_repeat:
                raise self._unavailable(request, error) from error
        except httpx2.HTTPError as error:
            raise self._unavailable(request, error) from error
        try:
            return await self._send_once(request)
        except httpx2.HTTPError as error:
            raise self._unavailable(request, error) from error

    async def _send_once(self, request: Request) -> httpx2.Response:
        here = self._endpoint
        # Plain lists come in chunks of 4 KiB: even on loopback they take twice as long, and thrice the work.
        headers = {"accept": JSON, "accept-encoding": "gzip", "user-agent": f"levers9/{__version__}"}
        if request.body:
            headers["content-type"] = request.content_type
        if here.authorization:
            headers["authorization"] = here.authorization
        built = self._http.build_request(
            request.method,
            here.server.rstrip("/") + request.target,
            content=request.body or None,
            headers=headers,
            timeout=httpx2.Timeout(request.quiet_s, connect=CONNECT_WITHIN_S, write=ANSWER_WITHIN_S),
            extensions={"sni_hostname": here.tls_name} if here.tls_name else None,
        )
        with trio.move_on_after(request.begins_within_s):
            return await self._http.send(built, stream=True)
        raise httpx2.ReadTimeout("no answer began", request=built)

    async def _renew_when_due(self) -> None:
        if trio.current_time() - self._renewed_at_s < self._endpoint.renew_after_s:
            return
        try:
            await self._renew(self._endpoint)
        except LeversError as error:  # what we have may still do
            _log.warning("credentials of a cluster could not be renewed", error=str(error))
            self._renewed_at_s = trio.current_time()

    async def _renew(self, used: Endpoint) -> None:
        """Learn anew how to reach it, unless another task has done so since `used` was."""
        async with self._renewing:
            if self._endpoint is not used or used.renew is None:
                return
            self._endpoint = await used.renew()
            self._renewed_at_s = trio.current_time()
            if used.same_connections(self._endpoint):
                return
            older, self._former, self._http = self._former, self._http, self._make(self._endpoint)
            if older is not None:
                await older.aclose()

    def _named(self, request: Request) -> str:
        return f"{request.what} at {self._endpoint.server}"

    def _unavailable(self, request: Request, error: Exception) -> KubeUnavailable:
        return KubeUnavailable(f"{request.what}: {sentence(self._endpoint.server, self._endpoint.proxy, error)}")


async def _break_off(response: httpx2.Response, pieces: AsyncIterator[bytes]) -> None:
    """Close an answer that was not read to its end, and let every generator that reads it see that it is closed."""
    await response.aclose()
    with contextlib.suppress(KubeUnavailable, httpx2.StreamError):
        async for _ in pieces:
            pass


def http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Pooled connections to an API server; nobody's environment is asked."""
    transport = httpx2.AsyncHTTPTransport(
        verify=endpoint.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # reading roots takes 30 ms
        trust_env=False,
        http2=False,
        limits=httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEPT_IDLE_S),
        proxy=endpoint.proxy or None,
        socket_options=_KEEPALIVE,
    )
    return httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


@contextlib.asynccontextmanager
async def open_connection(
    endpoint: Endpoint, chance: Chance, make: MakeClient = http_client
) -> AsyncIterator[Connection]:
    """A connection while the context lasts."""
    connection = Connection(endpoint, chance, make)
    try:
        yield connection
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_WITHIN_S):
            await connection.aclose()


def _unix_s(date: str) -> float:
    """Unix time of a Date header; 0 for what is none."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
