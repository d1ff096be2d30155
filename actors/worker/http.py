"""Objects and logs over the gateway's HTTP. A gateway that is away, busy or failing is asked again until it answers."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
import trio

from ...errors import LeversError, Refused, StoreUnavailable
from ...model.ids import Chance
from ...wire.carriers.proxy import parse_proxy
from ...wire.carriers.trust import client_context, why_untrusted
from ...wire.carriers.websocket import check_token_is_safe
from .logs import LogLine
from .objects import Owner

if TYPE_CHECKING:
    import httpx2

CONNECT_WITHIN_S: Final = 5.0
ANSWER_WITHIN_S: Final = 60.0
AGAIN_FIRST_S: Final = 0.2
AGAIN_MAX_S: Final = 10.0
_AGAIN: Final = frozenset({408, 425, 429})  # besides 500 and above

_log = structlog.get_logger()
_encode: Final = msgspec.msgpack.encode
_blobs: Final = msgspec.msgpack.Decoder(dict[str, bytes])


class ErrorBody(msgspec.Struct, frozen=True):
    """What the gateway says with an error's status."""

    code: str = "refused"
    what: str = ""
    why: str = ""
    fix: str = ""


class GatewayHttp:
    """A worker's HTTP to the control plane."""

    def __init__(self, client: httpx2.AsyncClient, chance: Chance) -> None:
        self._client = client
        self._chance = chance

    async def get_many(self, owner: Owner, keys: tuple[str, ...]) -> dict[str, bytes]:
        """See `Objects`."""
        return _blobs.decode(await self._insist("POST", "/api/v1/objects/get", owner, _encode(keys)))

    async def get(self, owner: Owner, key: str) -> bytes:
        """See `Objects`."""
        return await self._insist("GET", f"/api/v1/objects/{key}", owner)

    async def put(self, owner: Owner, key: str, data: bytes) -> None:
        """See `Objects`."""
        await self._insist("PUT", f"/api/v1/objects/{key}", owner, data)

    async def send(self, container_id: str, chunk: int, lines: tuple[LogLine, ...]) -> None:
        """See `LogSink`. A chunk that is refused for good is dropped: asking again would hold up all that follow."""
        try:
            await self._ask("POST", f"/api/v1/logs/{container_id}/{chunk}", {}, _encode(lines))
        except Refused as error:
            _log.warning("a chunk of logs was refused", container_id=container_id, chunk=chunk, error=str(error))

    async def _insist(self, method: str, path: str, owner: Owner, body: bytes | None = None) -> bytes:
        wait_s = AGAIN_FIRST_S
        while True:
            try:
                return await self._ask(method, path, {"workspace": owner.workspace_id}, body)
            except StoreUnavailable as error:
                _log.warning("asking again", path=path, error=str(error))
            await trio.sleep(self._chance.uniform(wait_s / 2, wait_s))
            wait_s = min(2 * wait_s, AGAIN_MAX_S)

    async def _ask(self, method: str, path: str, query: dict[str, str], body: bytes | None) -> bytes:
        import httpx2

        try:
            answer = await self._client.request(method, path, params=query, content=body)
        except httpx2.HTTPError as error:
            why = why_untrusted(error, self._client.base_url.host) or str(error) or type(error).__name__
            raise StoreUnavailable(f"{method} {path}: {why}") from error
        if answer.is_success:
            return answer.content
        raise _error(answer.status_code, answer.content, f"{method} {path}")


def _error(status: int, body: bytes, asked: str) -> LeversError:
    if status >= 500 or status in _AGAIN:
        return StoreUnavailable(f"{asked} was answered with {status}")
    try:
        told = msgspec.json.decode(body, type=ErrorBody)
    except msgspec.MsgspecError:
        told = ErrorBody(what=f"{asked} was answered with {status}.")
    return Refused(told.what, told.why, told.fix, told.code)


@contextlib.asynccontextmanager
async def open_http(
    url: str, token: str, chance: Chance, *, ca_pem: str = "", proxy: str = ""
) -> AsyncIterator[GatewayHttp]:
    """HTTP to the gateway at `url`, while the context lasts: through `proxy` if there is one, with `ca_pem` trusted.

    Raises `Refused` when the token would travel in the clear.
    """
    import httpx2

    check_token_is_safe(url, token)
    limits = httpx2.Timeout(ANSWER_WITHIN_S, connect=CONNECT_WITHIN_S, pool=None)
    headers = {"authorization": f"Bearer {token}"}
    trust = _trust_of(url, ca_pem)
    through = _proxy_of(proxy) if proxy else None
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=limits, trust_env=False, verify=trust, proxy=through
    ) as client:
        yield GatewayHttp(client, chance)


def _trust_of(url: str, ca_pem: str) -> ssl.SSLContext:
    """The system's roots and our own; without TLS none are read, which takes 30 ms."""
    return client_context(ca_pem) if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy_of(url: str) -> httpx2.Proxy:
    import httpx2

    proxy = parse_proxy(url)
    headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else {}
    return httpx2.Proxy(f"http://{proxy.shown}", headers=headers)
