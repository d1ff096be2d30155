"""Where the ranks of a gang meet: a port that is free, at an address at which other workers reach this one."""

from __future__ import annotations

import contextlib
import socket

LOOPBACK = "127.0.0.1"


def free_port(host: str = "") -> int:
    """A port that nobody listens on, at this address of ours or ("") at all of them.

    It is bound for a moment and closed: nothing keeps it until the code of rank 0 listens there, and another process
    may take it meanwhile. Holding it would keep that code from binding it.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((host, 0))
        except OSError:  # it is reached at an address that it has not itself, behind a translation
            listener.bind(("", 0))
        return int(listener.getsockname()[1])


def own_address() -> str:
    """The address of this host by its name; loopback where the name has none."""
    with contextlib.suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return LOOPBACK
