"""Where an API server is and how to show who we are, whatever that was learned from."""

from __future__ import annotations

import math
import ssl
from collections.abc import Awaitable, Callable

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An API server, whom to trust there, and our credentials.

    `authorization` is the whole header, "" without one. A certificate of our own is in `tls`, as are the roots. `renew`
    learns all of it again: when the server no longer knows us, and after `renew_after_s`; it raises `ConfigError`.
    """

    server: str  # such as https://10.0.0.1:6443, perhaps with a path
    tls: ssl.SSLContext | None = None  # None for plain http
    authorization: str = ""
    tls_name: str = ""  # the name in its certificate, where it is not the host's
    proxy: str = ""  # the URL of a proxy, "" for none
    namespace: str = "default"
    context: str = ""  # of the kubeconfig; "" inside a cluster
    renew_after_s: float = math.inf
    renew: Callable[[], Awaitable[Endpoint]] | None = None

    def __repr__(self) -> str:
        """Without credentials: it may land in a log."""
        return f"Endpoint({self.server!r})"

    def same_connections(self, other: Endpoint) -> bool:
        """Whether connections to this one serve the other as well."""
        return (self.server, self.proxy, id(self.tls)) == (other.server, other.proxy, id(other.tls))
