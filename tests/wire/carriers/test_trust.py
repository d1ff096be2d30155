"""Certificates: whose are trusted, and what is said of one that is not."""

import contextlib
import datetime
import ssl
from functools import partial

import pytest
import trio
import trustme

from levers9.errors import BrokenByPeer, ConfigError
from levers9.wire.carriers import websocket
from levers9.wire.carriers.trust import CA_PEM, ca_of, client_context, why_untrusted

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


async def _hold(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
    with contextlib.suppress(BrokenByPeer):
        await carrier.receive()


async def dialled(certificate: trustme.LeafCert, context: ssl.SSLContext | None) -> str:
    """What a dial to a server with this certificate says; "" when it is let in."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(server)
    said = ""
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, _hold, ssl_context=server))
        with trio.fail_after(5):
            try:
                carrier = await websocket.connect(f"wss://127.0.0.1:{port}", token="t", ssl_context=context)
                await carrier.aclose()
            except BrokenByPeer as error:
                said = str(error)
        nursery.cancel_scope.cancel()
    return said


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    return client_context(authority.cert_pem.bytes().decode())


async def test_an_authority_of_one_s_own_is_trusted_beside_the_system_s() -> None:
    authority = trustme.CA()
    context = trusting(authority)
    assert await dialled(authority.issue_cert("127.0.0.1"), context) == ""
    assert len(context.get_ca_certs()) >= 1


async def test_a_signer_that_nobody_knows_is_told_with_where_to_give_it() -> None:
    said = await dialled(trustme.CA().issue_cert("127.0.0.1"), None)
    assert said == (
        "The certificate of 127.0.0.1 is not signed by anybody this machine trusts: "
        "give the control plane's CA in LEVERS9_CA_PEM, or a file with it in SSL_CERT_FILE."
    )


async def test_another_name_and_other_times_have_sentences_of_their_own() -> None:
    authority = trustme.CA()
    context = trusting(authority)
    assert "for another name" in await dialled(authority.issue_cert("plane.test"), context)
    assert "for another name" in await dialled(authority.issue_cert("127.0.0.9"), context)
    over = authority.issue_cert("127.0.0.1", not_before=NOW - 2 * DAY, not_after=NOW - DAY)
    assert "has expired" in await dialled(over, context)
    early = authority.issue_cert("127.0.0.1", not_before=NOW + DAY, not_after=NOW + 2 * DAY)
    assert "not valid yet" in await dialled(early, context)


def test_anything_else_is_told_in_openssl_s_words() -> None:
    revoked = ssl.SSLCertVerificationError(1, "no")
    revoked.verify_code, revoked.verify_message = 23, "certificate revoked"
    outer = trio.BrokenResourceError()
    outer.__cause__ = revoked
    assert "plane.test cannot be trusted (certificate revoked)" in why_untrusted(outer, "plane.test")
    assert why_untrusted(OSError("gone"), "plane.test") == why_untrusted(None, "") == ""


@pytest.mark.parametrize("pem", ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ü"])
def test_text_that_is_no_certificate_is_a_wrong_configuration(pem: str) -> None:
    with pytest.raises(ConfigError, match="LEVERS9_CA_PEM holds no certificate"):
        client_context(pem)


def test_the_environment_gives_certificates() -> None:
    assert (ca_of({CA_PEM: "x"}), ca_of({})) == ("x", "")
