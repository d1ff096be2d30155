"""Dialling a worker that listens: each side proves that it knows the worker's token, and neither shows it.

The control plane keeps a token's SHA-256 only, and the worker can work that out: it is the key of both proofs. They are
HMACs over the side, the worker and the fingerprint of the certificate on this very connection, "" on loopback without
TLS. So whoever answers in the worker's place learns a proof that is good for nobody else's certificate, and cannot make
the worker's own, with which the worker's stream begins. The certificate needs no signer and no name.
"""

from __future__ import annotations

import base64
import hmac
import ssl
import urllib.parse
from functools import partial
from typing import Final

import trio

from ...errors import UNAUTHENTICATED, BrokenByPeer, Busy, Refused
from ...model.loopback import is_loopback
from ...model.tokens import hash_of
from ..redial import Redial
from . import websocket
from .certificate import fingerprint, self_signed
from .reaching import ClientStream, open_stream
from .websocket import WebSocketCarrier

PATH: Final = "/v1/worker"
PLACES: Final = 16  # one stream is used; the rest are knocks of other gateways, or of strangers
ANSWER_WITHIN_S: Final = 10.0
_DIALS: Final = "dials"
_ANSWERS: Final = "answers"


def proof(token_hash: bytes, side: str, worker_id: str, certificate: bytes) -> str:
    """What one side says; `certificate` is the fingerprint of the worker's."""
    said = b"\0".join((b"levers9", side.encode(), worker_id.encode(), certificate))
    return base64.urlsafe_b64encode(hmac.digest(token_hash, said, "sha256")).decode()


async def dial(url: str, *, worker_id: str, token_hash: bytes) -> WebSocketCarrier:
    """A stream to the worker that listens at `url` (wss://, or ws:// on loopback).

    Raises `Refused` when it is not this worker, or does not believe us, or would have us prove ourselves in the clear;
    `BrokenByPeer` when nobody is there, or the worker has another gateway's stream.
    """
    parts = urllib.parse.urlsplit(url)
    secure = parts.scheme == "wss"
    websocket.check_token_is_safe(url, "a proof")
    context = _any_certificate() if secure else None
    opening = partial(open_stream, parts.hostname or "", parts.port or 443, secure=secure, ssl_context=context)
    seen: list[bytes] = []

    def headers_on(stream: ClientStream) -> dict[str, str]:
        seen.append(_certificate_on(stream))
        return websocket.bearer(proof(token_hash, _DIALS, worker_id, seen[0]))

    carrier = await websocket.connect_over(f"{url.rstrip('/')}{PATH}", opening, headers_on)
    try:
        await _hear_proof(carrier, proof(token_hash, _ANSWERS, worker_id, seen[0]), worker_id)
    except BaseException:
        with trio.CancelScope(shield=True):
            await carrier.aclose()
        raise
    return carrier


async def _hear_proof(carrier: WebSocketCarrier, expected: str, worker_id: str) -> None:
    said = b""
    with trio.move_on_after(ANSWER_WITHIN_S) as scope:
        said = await carrier.receive()
    if scope.cancelled_caught:
        raise BrokenByPeer(f"Worker {worker_id} did not answer within {ANSWER_WITHIN_S:g} s.")
    if not hmac.compare_digest(said, expected.encode()):
        raise Refused(f"Who answers there is not worker {worker_id}.", "It does not know the worker's token.")


def at_once() -> Redial:
    """How a listening worker's link redials: who comes decides when, and not the link."""
    return Redial(first_min_s=0.0, first_max_s=0.01, max_s=0.01)


def _any_certificate() -> ssl.SSLContext:
    """The proofs say whose certificate it is, and not a signer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _certificate_on(stream: ClientStream) -> bytes:
    if isinstance(stream, trio.SSLStream):
        return fingerprint(stream.getpeercert(binary_form=True) or b"")
    return b""


class DialledListener:
    """A worker's end: lets in who knows its token, one stream at a time, and hands each to its link by `dial`."""

    def __init__(self, *, worker_id: str, token: str) -> None:
        self._worker_id = worker_id
        self._token_hash = hash_of(token)
        self._certificate = b""
        self._current: WebSocketCarrier | None = None
        self._offered: WebSocketCarrier | None = None
        self._came = trio.Event()

    async def run(self, host: str, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; started with the port. Without TLS on loopback only. Raises `OSError`."""
        context, self._certificate = (None, b"") if is_loopback(host) else self_signed()
        await websocket.serve(
            host,
            port,
            self._hold,
            check=self._check,
            ssl_context=context,
            places=trio.CapacityLimiter(PLACES),
            task_status=task_status,
        )

    async def dial(self) -> WebSocketCarrier:
        """The next stream that comes: what a link is given to dial with."""
        while self._offered is None:
            await self._came.wait()
        carrier, self._offered = self._offered, None
        return carrier

    async def _check(self, request: websocket.RequestInfo) -> None:
        expected = proof(self._token_hash, _DIALS, self._worker_id, self._certificate)
        if request.path != PATH or not hmac.compare_digest(request.token.encode(), expected.encode()):
            raise Refused(f"This is not a control plane of worker {self._worker_id}.", code=UNAUTHENTICATED)
        if self._current is not None:
            raise Refused("Another gateway has this worker's stream.", code=Busy.code)

    async def _hold(self, request: websocket.RequestInfo, carrier: WebSocketCarrier) -> None:
        if self._current is not None:
            return
        self._current = carrier
        try:
            await carrier.send(proof(self._token_hash, _ANSWERS, self._worker_id, self._certificate).encode())
            self._offered = carrier
            self._came.set()
            self._came = trio.Event()
            await carrier.gone.wait()
        except BrokenByPeer:
            pass
        finally:
            self._current = None
            if self._offered is carrier:
                self._offered = None
