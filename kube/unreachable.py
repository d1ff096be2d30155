"""Why an API server cannot be reached, as a sentence that says what to do. Pure."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Final

_OTHER_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED


def sentence(server: str, proxy: str, error: BaseException) -> str:
    """What is wrong between us and `server`, told by the deepest cause that says something."""
    via = f" through the proxy {_without_password(proxy)}" if proxy else ""
    for cause in _causes(error):
        told = _known(cause, bool(proxy))
        if told:
            return f"The API server {server} cannot be reached{via}: {told}"
    return f"The API server {server} cannot be reached{via}: {str(error) or type(error).__name__}."


def _known(cause: BaseException, proxied: bool) -> str:
    match cause:
        case ssl.SSLCertVerificationError():
            return _certificate(cause)
        case ssl.SSLError():
            return f"TLS failed ({cause.reason or cause}). Is it https, and is this its port?"
        case socket.gaierror():
            return "its name cannot be resolved. Check the name, DNS, and the VPN where there is one."
        case ConnectionRefusedError():
            if proxied:
                return "the proxy refuses connections. Check HTTPS_PROXY, NO_PROXY and proxy-url."
            return "it refuses connections. Is the API server running, and is this its port?"
        case ConnectionResetError() | BrokenPipeError():
            return "the connection was cut by the other side."
    if type(cause).__name__ == "ProxyError":
        return f"the proxy does not let us through ({cause}). Check HTTPS_PROXY, NO_PROXY and proxy-url."
    if "Timeout" in type(cause).__name__:
        return "it does not answer in time. A firewall, or a VPN that is off, looks like this."
    return ""


def _certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OTHER_NAME:
        return f"its certificate is for another name ({error.verify_message}). tls-server-name names the right one."
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: it must be renewed there (or our clock is wrong)."
    return (
        f"its certificate is not trusted ({error.verify_message}). Name the CA that signed it: certificate-authority "
        "in the kubeconfig."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """From the deepest up: the root says most."""
    under = error.__cause__ or error.__context__
    if under is not None and under is not error:
        yield from _causes(under)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    yield error


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]
