"""What counts as this machine itself: where a token may travel in plain text."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether this host, an address without brackets or a name, can only be this machine.

    That is `localhost`, 127.0.0.0/8 and ::1, also where an IPv6 socket shows the former as ::ffff:127.0.0.1. No other
    name is, whatever it looks like and leads to: who resolves it may be somebody else.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == NAME
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
