"""Keys and certificates of a lab: one authority, and what it signs for the API server, etcd and the kubelets."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIVES: Final = datetime.timedelta(days=365)
_EARLIER: Final = datetime.timedelta(minutes=5)  # clocks differ


class Authority:
    """Signs certificates. It lives as long as the process: its own key is never written."""

    def __init__(self, now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "levers9-lab")])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, folder: Path, name: str, organization: str = "", addresses: tuple[str, ...] = ()) -> None:
        """Write `name.crt` and `name.key`, good for servers at `addresses` and for clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = self._builder(x509.Name(attributes), key.public_key())
        names: list[x509.GeneralName] = [_general(each) for each in addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_key(folder / f"{name}.key", key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _EARLIER)
            .not_valid_after(self._now + _LIVES)
        )


def write_signing_key(private: Path, public: Path) -> None:
    """A pair of keys, with which the API server signs tokens of service accounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(private, key)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key for its owner's eyes."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
