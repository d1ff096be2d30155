"""Whose certificates are trusted, and in words why one is not. Used by whoever dials a control plane."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from ...errors import ConfigError

CA_PEM: Final = "LEVERS9_CA_PEM"  # certificates in the environment, trusted beside the system's
GIVE_CA: Final = f"give the control plane's CA in {CA_PEM}, or a file with it in SSL_CERT_FILE"
# OpenSSL's X509_V_ERR_…
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_OTHER_NAME: Final = (62, 64)  # HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
_UNKNOWN_SIGNER: Final = (2, 18, 19, 20, 21)  # an issuer that is missing, or signs itself


def client_context(ca_pem: str = "") -> ssl.SSLContext:
    """Trusts the system's roots, or those that SSL_CERT_FILE names, and the certificates of `ca_pem`.

    Raises `ConfigError` when `ca_pem` holds no certificate.
    """
    context = ssl.create_default_context()
    if ca_pem.strip():
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError, TypeError) as error:
            fix = "It is text that begins with -----BEGIN CERTIFICATE-----."
            raise ConfigError(f"{CA_PEM} holds no certificate: {_reason(error)}. {fix}") from error
    return context


def ca_of(environment: Mapping[str, str] = os.environ) -> str:
    """The certificates that the environment gives."""
    return environment.get(CA_PEM, "")


def why_untrusted(error: BaseException | None, host: str) -> str:
    """A sentence about a certificate that did not pass, with what to do; "" when `error` is about something else."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    code = error.verify_code
    if code == _EXPIRED:
        return f"The certificate of {host} has expired: renew it, or look at this machine's clock."
    if code == _NOT_YET:
        return f"The certificate of {host} is not valid yet: look at this machine's clock."
    if code in _OTHER_NAME:
        return f"The certificate of {host} is for another name: dial a name that it has, or issue it for {host} too."
    if code in _UNKNOWN_SIGNER:
        return f"The certificate of {host} is not signed by anybody this machine trusts: {GIVE_CA}."
    return f"The certificate of {host} cannot be trusted ({error.verify_message}): {GIVE_CA}."


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error) or type(error).__name__).replace("_", " ").lower()
