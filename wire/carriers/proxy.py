"""Which proxy a dial goes through, and the words of HTTP CONNECT. Pure.

The variables mean what they mean to curl: `https_proxy` or `HTTPS_PROXY`, else `all_proxy` or `ALL_PROXY`, and
`no_proxy` or `NO_PROXY` for hosts that are dialled directly. Only what is encrypted goes through a proxy: our tokens
travel in the clear on loopback alone.
"""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

import msgspec

from ...errors import BrokenByPeer, ConfigError

ANSWER_MAX_BYTES: Final = 16 << 10  # of the header with which a proxy answers; ours end at 32 KiB
_END: Final = b"\r\n\r\n"
_SECURE: Final = ("wss", "https")
_PORTS: Final = {"wss": 443, "https": 443}
_WORDS: Final = {
    403: "It does not let this machine reach that host: have the host allowed there, or name it in NO_PROXY.",
    407: "It wants a name and a password: write them in HTTPS_PROXY, as in http://NAME:PASSWORD@HOST:PORT.",
    502: "It could not reach that host.",
    503: "It could not reach that host.",
    504: "It could not reach that host in time.",
}


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy that speaks plain HTTP. `authorization` is the header's value, "" without a name and a password."""

    host: str
    port: int
    authorization: str = ""

    @property
    def shown(self) -> str:
        """How it is named to people: without its password."""
        return f"{bracketed(self.host)}:{self.port}"


def parse_proxy(url: str) -> Proxy:
    """The proxy of an `http://[NAME:PASSWORD@]HOST[:PORT]`; the scheme may be left out. Raises `ConfigError`."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        shown = f"{parts.scheme}://{parts.hostname or ''}"  # a password is never shown
        raise ConfigError(f"The proxy {shown} cannot be used: write HTTPS_PROXY as http://HOST:PORT.")
    name, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    basic = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Proxy(host=parts.hostname, port=port, authorization=f"Basic {basic}" if name or password else "")


def proxy_for(url: str, environment: Mapping[str, str]) -> str:
    """The URL of the proxy through which `url` is reached, "" for none."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _SECURE or not parts.hostname:
        return ""
    proxy = _variable(environment, "https_proxy") or _variable(environment, "all_proxy")
    if not proxy or _is_exempt(parts.hostname, parts.port or _PORTS[parts.scheme], _variable(environment, "no_proxy")):
        return ""
    return proxy


def _variable(environment: Mapping[str, str], name: str) -> str:
    """As with curl the lower-case name goes first."""
    return (environment.get(name) or environment.get(name.upper(), "")).strip()


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    return any(_matches(entry.lower(), host.lower().rstrip("."), port) for entry in no_proxy.replace(",", " ").split())


def _matches(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY names this host: `*`, an address, a network, a domain and all below it."""
    if entry == "*":
        return True
    address = _address(host)
    if address is not None and "/" in entry:
        return _in_network(address, entry)
    name, only_port = _split_port(entry)
    if only_port and only_port != port:
        return False
    if address is not None:
        return _address(name) == address
    domain = name.removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _in_network(address: IPv4Address | IPv6Address, entry: str) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, int]:
    """`host:port` in two; an IPv6 address has a port only behind brackets."""
    name, _, port = entry.rpartition(":")
    if name and port.isascii() and port.isdigit() and (":" not in name or name.endswith("]")):
        return name, int(port)
    return entry, 0


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def connect_request(proxy: Proxy, host: str, port: int) -> bytes:
    """What asks a proxy for a tunnel to a host's port."""
    target = f"{bracketed(host)}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", "User-Agent: levers9"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace")


class ConnectAnswer:
    """The answer of a proxy, as it arrives. Raises `BrokenByPeer` for anything but a tunnel."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self._shown = proxy.shown
        self._target = f"{bracketed(host)}:{port}"
        self._seen = b""

    def feed(self, data: bytes) -> bool:
        """Take in what came; `b""` is its end. True once the tunnel is open."""
        self._seen += data
        head, end, rest = self._seen.partition(_END)
        if not end:
            if not data:
                raise self._broken("closed the connection before it had answered")
            if len(self._seen) > ANSWER_MAX_BYTES:
                raise self._broken("answered with something other than HTTP")
            return False
        status = _status_of(head)
        if status is None:
            raise self._broken("answered with something other than HTTP")
        if status // 100 != 2:
            raise self._broken(f"answered with HTTP status {status}", _WORDS.get(status, ""))
        if rest:  # in TLS the client speaks first
            raise self._broken("sent bytes before the tunnel was open")
        return True

    def _broken(self, what: str, fix: str = "") -> BrokenByPeer:
        said = f"The proxy {self._shown}, asked for {self._target}, {what}."
        return BrokenByPeer(f"{said} {fix}".rstrip())


def _status_of(head: bytes) -> int | None:
    version, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    status = rest[:3]
    return int(status) if version.startswith(b"HTTP/1.") and len(status) == 3 and status.isdigit() else None
