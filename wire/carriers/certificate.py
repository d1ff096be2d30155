"""A certificate that nobody signs but its own key, for a listener whose peers know it by its fingerprint."""

from __future__ import annotations

import datetime
import hashlib
import ssl
import tempfile
from pathlib import Path
from typing import Final

NAME: Final = "levers9-worker"
VALID_FOR: Final = datetime.timedelta(days=3650)  # it lives as long as its process; nobody looks at its dates


def fingerprint(certificate: bytes) -> bytes:
    """SHA-256 of a certificate in DER."""
    return hashlib.sha256(certificate).digest()


def self_signed() -> tuple[ssl.SSLContext, bytes]:
    """A server's TLS with a new key, and its fingerprint. The key is in a file for as long as OpenSSL reads it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = builder.not_valid_before(now).not_valid_after(now + VALID_FOR).sign(key, hashes.SHA256())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:  # only its owner can enter it
        pem = Path(folder, "both.pem")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(pem)
    return context, fingerprint(certificate.public_bytes(Encoding.DER))
