"""Why an API server cannot be reached, in words a person can act on: tried with real sockets and certificates."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trustme

from levers9.errors import KubeUnavailable
from levers9.kube.client import open_kube
from levers9.kube.endpoint import Endpoint
from levers9.kube.kinds import NODES
from levers9.kube.unreachable import sentence
from levers9.model.ids import Chance

from ..wire.carriers.connect_proxy import a_proxy


@contextlib.asynccontextmanager
async def a_server(certificate: trustme.LeafCert | None) -> AsyncIterator[str]:
    """It answers any request with an empty list, over TLS where it has a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if certificate:
        certificate.configure_cert(context)

    async def answer(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True) if certificate else raw
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.receive_some(4_096)
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        await trio.aclose_forcefully(raw)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


BODY = b'{"metadata":{"resourceVersion":"7"},"items":[]}'


async def asked(endpoint: Endpoint) -> str:
    """What is said when nodes are listed there; "" where that works."""
    async with open_kube(endpoint, Chance(1)) as kube:
        try:
            with trio.fail_after(10):
                await kube.list(NODES)
        except KubeUnavailable as error:
            return str(error)
    return ""


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_certificate_that_is_trusted_passes() -> None:
    authority = trustme.CA()
    async with a_server(authority.issue_cert("127.0.0.1")) as url:
        assert await asked(Endpoint(server=url, tls=trusting(authority))) == ""


async def test_a_certificate_of_somebody_else_is_told_with_what_to_name() -> None:
    async with a_server(trustme.CA().issue_cert("127.0.0.1")) as url:
        said = await asked(Endpoint(server=url, tls=trusting(trustme.CA())))
    assert f"list nodes: The API server {url} cannot be reached: its certificate is not trusted" in said
    assert "certificate-authority in the kubeconfig" in said


async def test_a_certificate_for_another_name_is_told_and_that_name_may_be_named() -> None:
    authority = trustme.CA()
    async with a_server(authority.issue_cert("api.corp.test")) as url:
        said = await asked(Endpoint(server=url, tls=trusting(authority)))
        named = await asked(Endpoint(server=url, tls=trusting(authority), tls_name="api.corp.test"))
    assert "is for another name" in said
    assert "tls-server-name" in said
    assert named == ""


async def test_a_certificate_that_has_expired_is_told() -> None:
    authority = trustme.CA()
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    async with a_server(authority.issue_cert("127.0.0.1", not_after=then)) as url:
        assert "has expired" in await asked(Endpoint(server=url, tls=trusting(authority)))


async def test_a_port_that_speaks_no_tls_is_told() -> None:
    async with a_server(None) as url:
        said = await asked(Endpoint(server=url.replace("http:", "https:"), tls=trusting(trustme.CA())))
    assert "TLS failed" in said
    assert "Is it https" in said


async def test_a_port_at_which_nobody_listens_is_told() -> None:
    with socket.socket() as claimed:
        claimed.bind(("127.0.0.1", 0))
        said = await asked(Endpoint(server=f"http://127.0.0.1:{claimed.getsockname()[1]}"))
    assert "it refuses connections" in said


async def test_a_proxy_leads_to_a_server_whose_name_it_alone_knows() -> None:
    authority = trustme.CA()
    async with (
        a_server(authority.issue_cert("api.test")) as url,
        a_proxy("me:pass", **{"api.test": "127.0.0.1"}) as proxy,
    ):
        server = url.replace("127.0.0.1", "api.test")
        said = await asked(Endpoint(server=server, tls=trusting(authority), proxy=proxy.url))
    assert said == ""
    assert proxy.tunnels == 1


async def test_a_proxy_that_refuses_is_named_without_its_password() -> None:
    async with a_proxy() as proxy:
        through = proxy.url.replace("http://", "http://me:pass@")
        said = await asked(Endpoint(server="https://elsewhere.test", tls=trusting(trustme.CA()), proxy=through))
    assert f"through the proxy {proxy.url}" in said
    assert "HTTPS_PROXY" in said
    assert "pass@" not in said


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (socket.gaierror(-2, "Name or service not known"), "cannot be resolved"),
        (ConnectionResetError(104, "reset"), "was cut by the other side"),
        (TimeoutError(), "does not answer in time"),
        (ExceptionGroup("tried", [OSError(101, "unreachable"), ConnectionRefusedError(111, "refused")]), "refuses"),
        (ValueError("odd"), "cannot be reached: odd."),
        (ValueError(), "cannot be reached: ValueError."),
    ],
)
def test_every_cause_has_its_sentence(error: Exception, told: str) -> None:
    assert told in sentence("https://api.test", "", error)
