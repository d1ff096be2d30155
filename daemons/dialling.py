"""How a worker and an agent dial their control plane: its addresses in turn, with a word about each reason why not."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Final

import structlog
import trio

from ..errors import BrokenByPeer
from ..model.figures import DIAL_LIMIT_S
from ..wire.carrier import Carrier
from ..wire.carriers import websocket
from ..wire.carriers.proxy import parse_proxy, proxy_for
from ..wire.carriers.trust import client_context

ANSWER_WITHIN_S: Final = 0.9 * DIAL_LIMIT_S  # before whoever dials gives up without a word
_log: Final = structlog.get_logger("dialling")


class Dialler:
    """Dials the next of `urls` each time, as `peer` with this id, through the environment's proxy.

    `ca_pem` is trusted beside the system's roots. Raises `ConfigError` for certificates or a proxy of no use.
    """

    def __init__(
        self,
        *,
        peer: str,
        own_id: str,
        urls: Sequence[str],
        token: str,
        ca_pem: str = "",
        environment: Mapping[str, str],
    ) -> None:
        self._query = urllib.parse.urlencode({"peer": peer, "id": own_id})
        self._urls = cycle(stream_url(url) for url in urls)
        self._token = token
        self._proxies = {stream_url(url): proxy_for(stream_url(url), environment) for url in urls}
        for proxy in filter(None, self._proxies.values()):
            parse_proxy(proxy)
        secure = any(stream_url(url).startswith("wss:") for url in urls)
        self._ssl_context = client_context(ca_pem) if secure else None
        self._told = ""

    async def __call__(self) -> Carrier:
        """Dial once. Raises `Refused` and `BrokenByPeer` as `connect` does."""
        url = next(self._urls)
        try:
            carrier = await self._dial(url)
        except BrokenByPeer as error:
            self._tell(url, str(error))
            raise
        self._tell(url, "")
        return carrier

    async def _dial(self, url: str) -> Carrier:
        proxy = self._proxies[url]
        context = self._ssl_context if url.startswith("wss:") else None
        whole = f"{url.rstrip('/')}/v1/stream?{self._query}"
        with trio.move_on_after(ANSWER_WITHIN_S):
            return await websocket.connect(whole, token=self._token, ssl_context=context, proxy=proxy)
        fix = "Look whether a firewall drops what goes there; HTTPS_PROXY names a proxy to go through."
        raise BrokenByPeer(f"{url} did not answer within {ANSWER_WITHIN_S:g} s. {fix}")

    def _tell(self, url: str, why: str) -> None:
        if why and why != self._told:
            _log.warning("the control plane cannot be reached", url=url, why=why)
        elif self._told and not why:
            _log.info("the control plane is reached again", url=url)
        self._told = why


def stream_url(url: str) -> str:
    """A control plane's address as one of streams: one external address serves both, by path."""
    return f"ws{url.removeprefix('http')}" if url.startswith(("http:", "https:")) else url
